"""What the pages of records and what settles them have in common: permissions, rows, addresses, cells."""

from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.templatetags.admin_urls import add_preserved_filters
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from retrysafe.cli.format import STANDINGS, clean, short_duration, standing_text, timestamp
from retrysafe.django.admin.rows import Rows, with_standing
from retrysafe.django.models import Record
from retrysafe.django.settings import guard

if TYPE_CHECKING:  # generic for checkers alone
    _Admin = ModelAdmin[Record]
else:
    _Admin = ModelAdmin

_CUT = 60
"""Characters of a text in a table."""


class RecordsBase(_Admin):
    # --- who may do what

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002 - as Django has it
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ANN401, ARG002 - as Django has it
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ANN401, ARG002 - as Django has it
        return False

    def has_release_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request) and _may(request, "retrysafe.release_record")

    def has_resolve_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request) and _may(request, "retrysafe.resolve_record")

    def has_bodies_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request) and _may(request, "retrysafe.view_bodies")

    def get_queryset(self, request: HttpRequest) -> Rows:
        return with_standing(super().get_queryset(request))

    # --- addresses

    def _url(self, model: str, name: str, *given: str) -> str:
        return reverse(f"admin:retrysafe_{model}_{name}", args=given, current_app=self.admin_site.name)

    def _with_filters(self, request: HttpRequest, url: str) -> str:
        preserved: Any = {"preserved_filters": self.get_preserved_filters(request), "opts": self.opts}
        return str(add_preserved_filters(preserved, url))

    def _to_list(self, request: HttpRequest) -> HttpResponse:
        return HttpResponseRedirect(self._with_filters(request, self._url("record", "changelist")))

    def _row(self, request: HttpRequest, object_id: str) -> Any:  # noqa: ANN401 - annotated
        return self.get_queryset(request).filter(pk=object_id).first()

    def _missing(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """A record that was purged or released is found in the audit trail, if anywhere."""
        self.message_user(
            request,
            f"There is no record {clean(object_id[:8])}: it may have expired, or an operator released it.",
            messages.WARNING,
        )
        return self._to_list(request)

    def _context(self, request: HttpRequest, title: str) -> dict[str, Any]:
        request.current_app = self.admin_site.name  # what `{% url %}` goes by
        return {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "title": title,
            "list_url": self._with_filters(request, self._url("record", "changelist")),
            "preserved_filters": self.get_preserved_filters(request),
        }


def _may(request: HttpRequest, permission: str) -> bool:
    user: Any = request.user  # of any kind that the project has
    return bool(user.has_perm(permission))


# --- cells of tables


def completed_word() -> str:
    """What the project's profile calls a completed record."""
    return guard().wire.completed_word


def badge(standing: str) -> SafeString:
    """A standing as the command line says it, `expired` or `unreadable`, in its colour."""
    completed = completed_word()
    named = next((standing_text(one, completed) for one in STANDINGS if one == standing), clean(standing))
    return format_html(
        '<span class="retrysafe-state retrysafe-{}">{}</span>', standing.replace("_", "-"), named
    )


def short(text: str) -> SafeString:
    """A text of a client's: printable, and not longer than a column is wide."""
    shown = clean(text)
    if len(shown) <= _CUT:
        return format_html("{}", shown)
    return format_html('<span title="{}">{}…</span>', shown[:1000], shown[: _CUT - 1])


def since(seconds: float, at: float) -> SafeString:
    return format_html('<span title="{}">{}</span>', timestamp(at), short_duration(seconds))
