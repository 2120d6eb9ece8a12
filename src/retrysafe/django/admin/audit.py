"""The audit trail: who intervened, when and why."""

import re
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.contrib.admin import ModelAdmin, ShowFacets, SimpleListFilter
from django.db.models import Q, Value
from django.db.models.functions import Lower
from django.db.models.lookups import Contains
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import smart_split, unescape_string_literal

from retrysafe.cli.format import clean, key_text, scope_text, timestamp
from retrysafe.cli.lookup import SHORTEST_ID
from retrysafe.django.admin.listing import FirstThousand, of_id
from retrysafe.django.admin.rows import Rows
from retrysafe.django.models import AuditEntry
from retrysafe.stores.sql import codec

if TYPE_CHECKING:  # generic for checkers alone
    _Admin = ModelAdmin[AuditEntry]
else:
    _Admin = ModelAdmin

_CUT = 80

_DIGITS = re.compile(rf"[0-9a-fA-F]{{{SHORTEST_ID},64}}")


class ActFilter(SimpleListFilter):
    title = "act"
    parameter_name = "act"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:  # noqa: ANN401, ARG002 - as Django has it
        return [(act, act) for act in ("release", "resolve", "redrive", "purge", "arm")]

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:  # noqa: ARG002 - as Django has it
        return queryset if self.value() is None else queryset.filter(act=self.value())


class AuditEntryAdmin(_Admin):
    list_display = ("when", "who", "what", "came_of_it", "of_record", "call", "why")
    list_display_links = ("when",)
    list_filter = (ActFilter,)
    list_per_page = 50
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    sortable_by = ()
    ordering = ("-entry",)
    actions = None  # there are none
    search_fields = ("reason",)
    search_help_text = (
        "Who, a word of the reason, the first digits of a record's id, a request id, a path or a key."
    )
    fields = (
        "when",
        "who",
        "what",
        "came_of_it",
        "why",
        "of_record",
        "call",
        "whose",
        "key_masked",
        "request",
    )
    readonly_fields = fields

    class Media:
        css: ClassVar = {"all": ("retrysafe/admin.css",)}

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002 - as Django has it
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ANN401, ARG002 - as Django has it
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ANN401, ARG002 - as Django has it
        return False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:  # noqa: ARG002 - as Django has it
        return lookup == ActFilter.parameter_name

    def get_changelist(self, request: HttpRequest, **_: Any) -> type[FirstThousand]:  # noqa: ARG002 - as Django has it
        return FirstThousand

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return super().changelist_view(request, {"title": "Audit trail", **(extra_context or {})})

    def get_search_results(
        self,
        request: HttpRequest,  # noqa: ARG002 - as Django has it
        queryset: Rows,
        search_term: str,
    ) -> tuple[Rows, bool]:
        for word in smart_split(search_term):
            quoted = word[0] in "\"'" and len(word) > 1 and word[0] == word[-1]
            text = codec.storable(unescape_string_literal(word) if quoted else word)
            # Not `icontains`, which on MySQL leaves case to the collation of the column.
            wanted = Q(Contains(Lower("by"), Value(text.lower())))
            wanted |= Q(Contains(Lower("reason"), Value(text.lower()))) | Q(target=text)
            wanted |= Q(request_id=text) | Q(key=text)
            if _DIGITS.fullmatch(text):
                wanted |= Q(pk__in=of_id(queryset, text, "record").values("pk"))
            queryset = queryset.filter(wanted)
        return queryset, False

    @admin.display(description="at")
    def when(self, entry: AuditEntry) -> str:
        return timestamp(entry.at.timestamp())

    @admin.display(description="by")
    def who(self, entry: AuditEntry) -> str:
        return clean(entry.by)

    @admin.display(description="act")
    def what(self, entry: AuditEntry) -> str:
        return clean(entry.act)

    @admin.display(description="outcome")
    def came_of_it(self, entry: AuditEntry) -> str:
        return clean(entry.outcome)

    @admin.display(description="reason")
    def why(self, entry: AuditEntry) -> str:
        return clean(entry.reason)

    @admin.display(description="record")
    def of_record(self, entry: AuditEntry) -> SafeString | str:
        if entry.record is None:
            return ""
        url = reverse("admin:retrysafe_record_change", args=(entry.record,), current_app=self.admin_site.name)
        return format_html('<a href="{}">{}</a>', url, entry.record[:8])

    @admin.display(description="call")
    def call(self, entry: AuditEntry) -> str:
        shown = clean(f"{entry.action} {entry.target}".strip())
        return shown if len(shown) <= _CUT else f"{shown[: _CUT - 1]}…"

    @admin.display(description="scope")
    def whose(self, entry: AuditEntry) -> str:
        try:
            return scope_text(codec.scope(entry.scope))
        except ValueError:
            return ""

    @admin.display(description="key")
    def key_masked(self, entry: AuditEntry) -> str:
        return "" if entry.record is None else key_text(entry.key, show_keys=False)

    @admin.display(description="request id")
    def request(self, entry: AuditEntry) -> str:
        return clean(entry.request_id)
