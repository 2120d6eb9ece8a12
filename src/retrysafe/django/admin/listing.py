"""The list of records: filters, search, and no counting.

Records have few indexes, because each would cost every request, and there may be a million of them.  So
nothing is counted.  The list goes by the expiry, which has an index: of records with the same retention the
youngest come first, and without a filter no more than the listed ones are looked at.  A filter or a search
looks through the table once, as `retrysafe ls` does, unless it goes by an id or by what waits for a worker;
and it ends at the first thousand.
"""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl

from django.contrib.admin import SimpleListFilter
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.core.paginator import InvalidPage, Paginator
from django.db.models import Q, Value
from django.db.models.functions import Left, StrIndex
from django.db.models.lookups import Exact, GreaterThan
from django.http import HttpRequest
from django.utils.text import smart_split, unescape_string_literal

from retrysafe.cli.format import STANDINGS, standing_text
from retrysafe.cli.lookup import SHORTEST_ID
from retrysafe.django.admin.rows import EXPIRED, Rows, store_time
from retrysafe.django.settings import guard
from retrysafe.stores.sql import codec

MOST = 1000
"""Records of a list: those who look for one further down have a filter to set."""


class FirstThousand(ChangeList):
    """Looks for the first rows once, and loads those of the page."""

    more: bool
    """There are more than are listed."""

    def get_results(self, request: HttpRequest) -> None:  # noqa: ARG002 - as Django has it
        found = list(self.queryset.values_list("pk", flat=True)[: MOST + 1])
        self.more = len(found) > MOST
        self.paginator = Paginator(found[:MOST], self.list_per_page)
        try:
            ids = list(self.paginator.page(self.page_num).object_list)
        except InvalidPage:
            raise IncorrectLookupParameters from None
        rows = {row.pk: row for row in self.root_queryset.filter(pk__in=ids)}
        self.result_list: Any = [rows[id] for id in ids if id in rows]
        self.result_count = self.paginator.count
        self.multi_page = self.paginator.num_pages > 1
        # Django says how many there are where it differs from this.
        self.full_result_count = None if self.query or self.has_active_filters else self.result_count
        self.show_full_result_count = False
        self.show_admin_actions = True
        self.can_show_all = False


# --- filters


class StandingFilter(SimpleListFilter):
    title = "state"
    parameter_name = "standing"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:  # noqa: ANN401, ARG002 - as Django has it
        completed = guard().wire.completed_word
        names = [(str(standing), standing_text(standing, completed)) for standing in STANDINGS]
        return [*names, (EXPIRED, EXPIRED)]

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:  # noqa: ARG002 - as Django has it
        wanted = self.value()
        if wanted is None:
            return queryset.exclude(standing=EXPIRED)
        narrowed = _NARROWED.get(wanted)
        if narrowed is None:
            raise IncorrectLookupParameters
        if wanted == EXPIRED:
            narrowed = Q(expires_at__lte=store_time(queryset.db))
        return queryset.filter(narrowed, standing=wanted)


_NARROWED = {
    "abandoned": Q(state="in_progress"),
    "waiting": Q(due_at__isnull=False),
    "in_progress": Q(state="in_progress"),
    "completed": Q(state="completed"),
    "failed": Q(state="failed"),
    EXPIRED: Q(),
}
"""What follows from a standing, in columns that the database has an index or statistics for."""


class DoorFilter(SimpleListFilter):
    title = "door"
    parameter_name = "door"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:  # noqa: ANN401, ARG002 - as Django has it
        return [("request", "request"), ("callback", "callback"), ("operation", "operation")]

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:  # noqa: ARG002 - as Django has it
        return queryset if self.value() is None else queryset.filter(door=self.value())


class AgeFilter(SimpleListFilter):
    title = "age"
    parameter_name = "age"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:  # noqa: ANN401, ARG002 - as Django has it
        return [(name, said) for name, (said, _, _) in _AGES.items()]

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:  # noqa: ARG002 - as Django has it
        wanted = self.value()
        if wanted is None:
            return queryset
        if wanted not in _AGES:
            raise IncorrectLookupParameters
        _, comparison, seconds = _AGES[wanted]
        return queryset.filter(**{f"created_at__{comparison}": store_time(queryset.db, seconds)})


_AGES = {
    "10m": ("at most 10 minutes", "gte", 600.0),
    "1h": ("at most an hour", "gte", 3600.0),
    "1d": ("at most a day", "gte", 86400.0),
    "7d": ("at most a week", "gte", 7 * 86400.0),
    "over-1h": ("more than an hour", "lte", 3600.0),
    "over-1d": ("more than a day", "lte", 86400.0),
}


class TextFilter(SimpleListFilter):
    """A field to type into: what there is to choose from is not known without a scan."""

    template = "admin/retrysafe/text_filter.html"
    placeholder = ""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:  # noqa: ANN401, ARG002 - as Django has it
        return []

    def has_output(self) -> bool:
        return True

    def value(self) -> str | None:
        return (super().value() or "").strip() or None

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        without = changelist.get_query_string(remove=[str(self.parameter_name), PAGE_VAR])
        yield {
            "name": self.parameter_name,
            "value": self.value() or "",
            "placeholder": self.placeholder,
            "others": parse_qsl(without.removeprefix("?"), keep_blank_values=True),
            "without": without,
        }

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:  # noqa: ARG002 - as Django has it
        wanted = self.value()
        return queryset if wanted is None else queryset.filter(self.condition(codec.storable(wanted)))

    def condition(self, wanted: str) -> Q:
        raise NotImplementedError


class ActionFilter(TextFilter):
    title = "method or action"
    parameter_name = "method"
    placeholder = "POST"

    def condition(self, wanted: str) -> Q:
        return Q(action=wanted)


class PathFilter(TextFilter):
    title = "path or target"
    parameter_name = "path"
    placeholder = "/orders/*"

    def condition(self, wanted: str) -> Q:
        return _begins(wanted[:-1]) if wanted.endswith("*") else Q(target=wanted)


class ScopeFilter(TextFilter):
    title = "scope"
    parameter_name = "scope"
    placeholder = "tenant=acme"

    def condition(self, wanted: str) -> Q:
        return _has_part(wanted) or Q(pk__in=())


class RequestIdFilter(TextFilter):
    title = "request id"
    parameter_name = "request_id"

    def condition(self, wanted: str) -> Q:
        return Q(request_id=wanted)


FILTERS = (StandingFilter, DoorFilter, AgeFilter, ActionFilter, PathFilter, ScopeFilter, RequestIdFilter)


# --- search

_DIGITS = re.compile(rf"[0-9a-fA-F]{{{SHORTEST_ID},64}}")


def search(rows: Rows, text: str) -> Rows:
    """Rows to which every word applies; a text in quotation marks is one."""
    for word in smart_split(text):
        quoted = word[0] in "\"'" and len(word) > 1 and word[0] == word[-1]
        rows = _matching(rows, codec.storable(unescape_string_literal(word) if quoted else word))
    return rows


def _matching(rows: Rows, word: str) -> Rows:
    if _DIGITS.fullmatch(word):
        by_id = of_id(rows, word)
        if len(word) == 64 or by_id.exists():
            return by_id  # by the primary key, where most of what is pasted from a log leads
    wanted = Q(key=word) | Q(request_id=word) | Q(target=word)
    if word.startswith("/"):
        wanted |= _begins(word.removesuffix("*"))
    if (part := _has_part(word)) is not None:
        wanted |= part
    return rows.filter(wanted)


def of_id(rows: Rows, digits: str, field: str = "pk") -> Rows:
    """Rows whose identity begins with these digits."""
    low, high = digits.lower().ljust(64, "0"), digits.lower().ljust(64, "f")
    return rows.filter(**{f"{field}__gte": low, f"{field}__lte": high})


def _begins(prefix: str) -> Q:
    # Not LIKE, which ignores case in SQLite.
    return Q(Exact(Left("target", len(prefix)), Value(prefix))) if prefix else Q()


def _has_part(text: str) -> Q | None:
    """`tenant=acme` as a part of a scope; `None`: it is not of that form."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        return None
    part = codec.parts_text(((name, value),))[1:-1]
    return Q(GreaterThan(StrIndex("scope", Value(part)), Value(0)))
