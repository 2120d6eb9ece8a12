"""The list of records, the page of one, and the page of figures."""

from collections.abc import Callable
from contextlib import closing
from functools import update_wrapper
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin import ShowFacets
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from retrysafe.cli.format import clean, key_text, relative, scope_text, timestamp
from retrysafe.cli.payloads import readable
from retrysafe.cli.words import status_text
from retrysafe.django.admin.base import badge, completed_word, short, since
from retrysafe.django.admin.figures import figures
from retrysafe.django.admin.interventions import RELEASED_AT_ONCE, can_be_resolved
from retrysafe.django.admin.listing import FILTERS, FirstThousand, search
from retrysafe.django.admin.page import Page, left, page
from retrysafe.django.admin.rows import EXPIRED, Rows, sighting_of
from retrysafe.django.admin.settling import Settling
from retrysafe.django.models import AuditEntry
from retrysafe.django.settings import guard
from retrysafe.errors import StoreError
from retrysafe.stores.admin import Sighting

_ENTRIES = 20
"""Of the audit trail, on the page of a record."""


_ORDER = {"abandoned": ("created_at",), "waiting": ("due_at",)}
"""Those first that have waited longest, for an operator and for a worker; the latter by an index."""


class RecordAdmin(Settling):
    list_display = (
        "record",
        "stands",
        "status_is",
        "age",
        "call",
        "whose",
        "key_masked",
        "attempt",
        "expires",
    )
    list_display_links = ("record",)
    list_filter = FILTERS
    list_per_page = 50
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    sortable_by = ("expires",)
    search_fields = ("key",)
    search_help_text = (
        "A key, a request id, the first digits of an id, a path or the beginning of one, or a part of a "
        "scope such as tenant=acme; of several words all must apply."
    )
    actions = ["release_selected", "resolve_selected"]  # noqa: RUF012 - as Django has it
    change_list_template = "admin/retrysafe/record/list.html"

    class Media:
        css: ClassVar = {"all": ("retrysafe/admin.css",)}

    # --- the list

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:  # noqa: ARG002 - as Django has it
        return any(lookup == one.parameter_name for one in FILTERS)  # and not by any column

    def get_changelist(self, request: HttpRequest, **_: Any) -> type[FirstThousand]:  # noqa: ARG002 - as Django has it
        return FirstThousand

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return _ORDER.get(request.GET.get("standing", ""), ("-expires_at",))

    def get_search_results(
        self,
        request: HttpRequest,  # noqa: ARG002 - as Django has it
        queryset: Rows,
        search_term: str,
    ) -> tuple[Rows, bool]:
        return search(queryset, search_term), False

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return super().changelist_view(request, {"title": "Records", **(extra_context or {})})

    @admin.display(description="record")
    def record(self, row: Any) -> str:  # noqa: ANN401 - annotated, as are all rows below
        return str(row.pk)[:8]

    @admin.display(description="state")
    def stands(self, row: Any) -> SafeString:  # noqa: ANN401
        if sighting_of(row) is None:
            return badge("unreadable")
        return badge(row.standing)

    @admin.display(description="call")
    def call(self, row: Any) -> SafeString:  # noqa: ANN401
        door = "" if row.door == "request" else f"{row.door}: "
        return short(f"{door}{row.action} {row.target}")

    @admin.display(description="scope")
    def whose(self, row: Any) -> SafeString:  # noqa: ANN401
        found = sighting_of(row)
        return short("" if found is None else scope_text(found.record.scope))

    @admin.display(description="key")
    def key_masked(self, row: Any) -> str:  # noqa: ANN401
        return key_text(row.key, show_keys=False)

    @admin.display(description="status")
    def status_is(self, row: Any) -> str:  # noqa: ANN401
        found = sighting_of(row)
        return "" if found is None else status_text(found.record)

    @admin.display(description="age")
    def age(self, row: Any) -> SafeString | str:  # noqa: ANN401
        found = sighting_of(row)
        return "" if found is None else since(found.now - found.record.created_at, found.record.created_at)

    @admin.display(description="expires", ordering="expires_at")
    def expires(self, row: Any) -> SafeString | str:  # noqa: ANN401
        found = sighting_of(row)
        if found is None or row.standing == "waiting":
            return ""  # what waits for a worker does not expire
        record = found.record
        held = record.state == "in_progress" and record.held_until > record.expires_at
        at = record.held_until if held else record.expires_at
        return "expired" if row.standing == EXPIRED else since(at - found.now, at)

    # --- the page of one record

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",  # noqa: ARG002 - as Django has it
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        row = self._row(request, object_id)
        if row is None:
            return self._missing(request, object_id)
        sighting = sighting_of(row, body=True)
        may_see = self.has_bodies_permission(request)
        whole = may_see and request.GET.get("bodies") == "whole"
        release, resolve = self._offered(request, row, sighting)
        context = {
            **self._context(request, f"Record {object_id[:8]}"),
            "object_id": row.pk,
            "original": row,
            "is_unreadable": sighting is None,
            "page": None if sighting is None else self._page(row, sighting, whole=whole),
            "is_whole": whole,
            "may_see_bodies": may_see,
            "release": release,
            "resolve": resolve,
            "left": left(sighting) if sighting is not None and row.standing == "in_progress" else "",
            "entries": self._entries(row),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/retrysafe/record/page.html", context)

    def _page(self, row: Any, sighting: Sighting, *, whole: bool) -> Page:  # noqa: ANN401
        payload = None if row.payload_size is None else bytes(row.payload)
        return page(
            sighting,
            expired=row.standing == EXPIRED,
            payload=payload,
            whole=whole,
            completed=completed_word(),
        )

    def _entries(self, row: Any) -> list[dict[str, str]]:  # noqa: ANN401
        """What was done to it."""
        now = row.now.timestamp()
        return [
            {
                "ago": relative(entry.at.timestamp(), now),
                "at": timestamp(entry.at.timestamp()),
                "by": clean(entry.by),
                "act": clean(entry.act),
                "outcome": clean(entry.outcome),
                "reason": clean(entry.reason),
            }
            for entry in AuditEntry.objects.filter(record=row.pk).order_by("-entry")[:_ENTRIES]
        ]

    def _offered(self, request: HttpRequest, row: Any, sighting: Sighting | None) -> tuple[str, bool]:  # noqa: ANN401
        """How it may be released, "plain" or "danger", and whether it may be resolved, by this user."""
        if sighting is None or row.standing in (EXPIRED, "in_progress"):
            return "", False
        release = "plain" if sighting.standing in RELEASED_AT_ONCE else "danger"
        return (
            release if self.has_release_permission(request) else "",
            can_be_resolved(sighting) and self.has_resolve_permission(request),
        )

    def history_view(
        self,
        request: HttpRequest,  # noqa: ARG002 - as Django has it
        object_id: str,
        extra_context: dict[str, Any] | None = None,  # noqa: ARG002 - as Django has it
    ) -> HttpResponse:
        """The audit trail has it: Django's own log does not know what the command line does."""
        return HttpResponseRedirect(f"{self._url('auditentry', 'changelist')}?{urlencode({'q': object_id})}")

    def content_view(self, request: HttpRequest, object_id: str, of: str) -> HttpResponse:
        """The exact bytes of a body or a payload, to be saved and not shown: they may be hostile markup."""
        if not self.has_bodies_permission(request):
            raise PermissionDenied
        row = self._row(request, object_id)
        sighting = None if row is None else sighting_of(row, body=True)
        content: bytes | None = None
        if of == "payload" and row is not None and row.payload_size is not None:
            content = readable(bytes(row.payload)).body
        elif of == "body" and sighting is not None and sighting.record.response is not None:
            content = sighting.record.response.body
        if content is None:
            return self._missing(request, object_id)
        return HttpResponse(
            content,
            content_type="application/octet-stream",
            headers={
                "Content-Disposition": f'attachment; filename="{object_id[:8]}-{of}"',
                "X-Content-Type-Options": "nosniff",
                "Content-Security-Policy": "sandbox",
                "Cache-Control": "no-store",
            },
        )

    # --- figures

    def figures_view(self, request: HttpRequest) -> HttpResponse:
        """It reads the whole table once, as `retrysafe stats` does."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            with closing(guard().store.open_admin()) as opened:
                found = opened.statistics()
        except StoreError as error:
            self.message_user(request, f"The figures cannot be read: {error}", messages.ERROR)
            return self._to_list(request)
        list_url = self._url("record", "changelist")
        context = {**self._context(request, "Figures"), "figures": figures(found, list_url, completed_word())}
        return TemplateResponse(request, "admin/retrysafe/record/figures.html", context)

    # --- addresses

    def get_urls(self) -> list[URLPattern]:
        def wrapped(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
            def wrapper(*given: Any, **named: Any) -> HttpResponse:
                return self.admin_site.admin_view(view)(*given, **named)

            wrapper.model_admin = self  # type: ignore[attr-defined]  # as Django has it
            return update_wrapper(wrapper, view)

        def named(name: str) -> str:
            return f"{self.opts.app_label}_{self.opts.model_name}_{name}"

        release, resolve, content = (
            wrapped(self.release_view),
            wrapped(self.resolve_view),
            wrapped(self.content_view),
        )
        return [
            path("figures/", wrapped(self.figures_view), name=named("figures")),
            path("release/", release, name=named("release")),
            path("resolve/", resolve, name=named("resolve")),
            path("<str:object_id>/release/", release, name=named("release_one")),
            path("<str:object_id>/resolve/", resolve, name=named("resolve_one")),
            path("<str:object_id>/body/", content, {"of": "body"}, name=named("body")),
            path("<str:object_id>/payload/", content, {"of": "payload"}, name=named("payload")),
            *super().get_urls(),
        ]
