"""Releasing and resolving records: the actions of the list, the confirmations, and what they do."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse

from retrysafe.cli import consequences
from retrysafe.cli.format import plural, scope_text, short_id
from retrysafe.cli.words import words
from retrysafe.django.admin import interventions
from retrysafe.django.admin.base import RecordsBase, badge, short, since
from retrysafe.django.admin.interventions import (
    ReasonForm,
    ResolveForm,
    ResponseForm,
    Seen,
    ValueForm,
    can_be_resolved,
    seen,
)
from retrysafe.django.admin.listing import MOST
from retrysafe.django.admin.page import left
from retrysafe.django.admin.rows import EXPIRED, Rows, sighting_of
from retrysafe.stores.admin import Note, Sighting

F = TypeVar("F", bound=Callable[..., Any])

_ROWS = 20
"""Of the records to change, shown above the question: enough to see whether the selection is right."""


def outside_transactions(view: F) -> F:
    """`ATOMIC_REQUESTS` does not hold for it: each intervention is a transaction of the store's own."""
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    return view


class Settling(RecordsBase):
    @admin.action(description="Release the selected records: the next call RUNS", permissions=["release"])
    def release_selected(self, request: HttpRequest, queryset: Rows) -> HttpResponse | None:
        found = self._selected(request, queryset)
        wanted = [one for one in found if one.standing in interventions.RELEASED_AT_ONCE]
        self._report_left_out(
            request,
            len(found) - len(wanted),
            "only abandoned and failed records are released together. One that is completed or waits for a "
            "worker is released from its own page",
        )
        return self._confirm_release(request, wanted) if wanted else None

    @admin.action(description="Resolve the selected abandoned records", permissions=["resolve"])
    def resolve_selected(self, request: HttpRequest, queryset: Rows) -> HttpResponse | None:
        found = self._selected(request, queryset)
        wanted = [one for one in found if can_be_resolved(one)]
        self._report_left_out(
            request,
            len(found) - len(wanted),
            "only abandoned records are resolved: the outcome of others is known",
        )
        if len({one.record.door == "operation" for one in wanted}) > 1:
            self.message_user(
                request,
                "Operations have values and requests have responses: select either the one or the other.",
                messages.WARNING,
            )
            return None
        return self._confirm_resolve(request, wanted) if wanted else None

    def _selected(self, request: HttpRequest, rows: Rows) -> list[Sighting]:
        found = list(rows[: MOST + 1])
        if len(found) > MOST:
            self.message_user(
                request,
                f"More than {MOST:,} records are selected; the others stay as they are.",
                messages.WARNING,
            )
        sightings = [sighting_of(row) for row in found[:MOST] if row.standing != EXPIRED]
        return [one for one in sightings if one is not None]

    def _report_left_out(self, request: HttpRequest, number: int, why: str) -> None:
        if number:
            left_out = plural(number, "selected record is", "selected records are")
            self.message_user(request, f"{left_out} left out: {why}.", messages.WARNING)

    @outside_transactions
    def release_view(self, request: HttpRequest, object_id: str | None = None) -> HttpResponse:
        if not self.has_release_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            sightings = self._one(request, object_id)
            if not sightings:
                return self._to_list(request)
            if sightings[0].standing == "in_progress":
                return self._refused(request, sightings[0])
            return self._confirm_release(request, sightings)
        everything = interventions.read_seen(request.POST.get("seen", ""))
        form = ReasonForm(request.POST)
        if not form.is_valid():
            return self._confirm_release(request, self._again(request, everything), form, everything)
        note = Note(request.user.get_username(), form.cleaned_data["reason"])
        ended = interventions.intervene(everything, interventions.release, note)
        call = words(*(one.record.door for one in ended.done)).call
        key = "its key" if len(everything) == 1 else "such a key"
        return self._ended(request, everything, ended, "released", f"the next {call} with {key} runs")

    @outside_transactions
    def resolve_view(self, request: HttpRequest, object_id: str | None = None) -> HttpResponse:
        if not self.has_resolve_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            sightings = self._one(request, object_id)
            if not sightings:
                return self._to_list(request)
            if not can_be_resolved(sightings[0]):
                return self._refused(request, sightings[0])
            return self._confirm_resolve(request, sightings)
        everything = interventions.read_seen(request.POST.get("seen", ""))
        sightings = self._again(request, everything)
        form = _resolve_form(sightings)(request.POST, records=[one.record for one in sightings])
        if not form.is_valid():
            return self._confirm_resolve(request, sightings, form, everything)
        note = Note(request.user.get_username(), form.cleaned_data["reason"])
        ended = interventions.intervene(everything, interventions.resolve(form), note)
        how = "done" if form.cleaned_data["outcome"] == "completed" else "failed"
        results = {consequences.result_text(one.record, form.final(one.record)) for one in ended.done}
        told = f"retries get {results.pop()}" if len(results) == 1 else "retries get that outcome"
        return self._ended(request, everything, ended, f"resolved as {how}", told)

    def _confirm_release(
        self,
        request: HttpRequest,
        sightings: Sequence[Sighting],
        form: ReasonForm | None = None,
        everything: Sequence[Seen] | None = None,
    ) -> HttpResponse:
        context = {
            "consequence": interventions.consequence_of_release(sightings) if sightings else "",
            "question": f"Release {plural(len(sightings), 'record')}",
            "is_dangerous": any(one.standing == "completed" for one in sightings),
        }
        return self._confirm(request, "release", sightings, form or ReasonForm(), everything, context)

    def _confirm_resolve(
        self,
        request: HttpRequest,
        sightings: Sequence[Sighting],
        form: ResolveForm | None = None,
        everything: Sequence[Seen] | None = None,
    ) -> HttpResponse:
        form = form or _resolve_form(sightings)()
        outcomes = [
            ("If it was done, retries get what you enter.", "completed"),
            ("If it failed, retries get that failure.", "failed"),
        ]
        context = {
            "consequences": [
                f"{start} {consequences.no_run(sightings[0], state)}"
                for start, state in outcomes
                if sightings
            ],
            "question": f"Resolve {plural(len(sightings), 'record')}",
        }
        return self._confirm(request, "resolve", sightings, form, everything, context)

    def _confirm(
        self,
        request: HttpRequest,
        act: str,
        sightings: Sequence[Sighting],
        form: ReasonForm,
        everything: Sequence[Seen] | None,
        context: dict[str, Any],
    ) -> HttpResponse:
        """What is about to be changed, and why: nothing is, until this form is sent."""
        if not sightings:
            self.message_user(
                request, "These records no longer exist. Nothing was changed.", messages.WARNING
            )
            return self._to_list(request)
        once = [seen(one) for one in sightings] if everything is None else everything
        alone = sightings[0].record.id.hex() if len(sightings) == 1 else None
        context = {
            **self._context(request, context["question"]),
            **context,
            "form": form,
            "act": act,
            "seen": " ".join(map(str, once)),
            "rows": [self._cells(one) for one in sightings[:_ROWS]],
            "rest": max(len(sightings) - _ROWS, 0),
            "object_id": alone,
            "action_url": self._with_filters(request, self._url("record", act)),
            "back_url": self._with_filters(
                request, self._url("record", "change", alone) if alone else self._url("record", "changelist")
            ),
        }
        return TemplateResponse(request, "admin/retrysafe/record/confirm.html", context)

    def _cells(self, one: Sighting) -> dict[str, Any]:
        record = one.record
        return {
            "id": short_id(record.id),
            "url": self._url("record", "change", record.id.hex()),
            "state": badge(one.standing),
            "call": short(f"{record.action} {record.target}"),
            "scope": short(scope_text(record.scope)),
            "age": since(one.now - record.created_at, record.created_at),
            "request_id": short(record.request_id),
            "sent": record.response.status if record.checkpointed and record.response else None,
        }

    def _ended(
        self,
        request: HttpRequest,
        everything: Sequence[Seen],
        ended: interventions.Ended,
        past: str,
        follows: str,
    ) -> HttpResponse:
        number = plural(len(everything), "record")
        if ended.done:
            one = short_id(ended.done[0].record.id) if len(everything) == 1 else ""
            what = f"Record {one} was {past}" if one else f"{len(ended.done):,} of {number} {past}"
            self.message_user(request, f"{what}; {follows}.", messages.SUCCESS)
        for now in ended.changed[:_ROWS]:
            self.message_user(request, f"Not {past}, because it changed meanwhile: {now}.", messages.WARNING)
        if len(ended.changed) > _ROWS:
            self.message_user(
                request, f"And {len(ended.changed) - _ROWS:,} more changed meanwhile.", messages.WARNING
            )
        if ended.trouble is not None:
            self.message_user(
                request,
                f"The store failed after {len(ended.done):,} of {number}: {ended.trouble}. The audit trail "
                "has what was done.",
                messages.ERROR,
            )
        if len(everything) == 1 and self._row(request, everything[0].id) is not None:
            url = self._url("record", "change", everything[0].id)
            return HttpResponseRedirect(self._with_filters(request, url))
        return self._to_list(request)

    def _refused(self, request: HttpRequest, one: Sighting) -> HttpResponse:
        advice = (
            f"its worker holds the lease{left(one)}. Once the lease has ended it is abandoned"
            if one.standing == "in_progress"
            else "only abandoned records are resolved"
        )
        what = f"Record {short_id(one.record.id)} is {interventions.described(one)}: {advice}."
        self.message_user(request, f"{what} Nothing was changed.", messages.WARNING)
        return HttpResponseRedirect(self._url("record", "change", one.record.id.hex()))

    def _one(self, request: HttpRequest, object_id: str | None) -> list[Sighting]:
        row = None if object_id is None else self._row(request, object_id)
        if row is None or row.standing == EXPIRED or (sighting := sighting_of(row)) is None:
            return []
        return [sighting]

    def _again(self, request: HttpRequest, everything: Sequence[Seen]) -> list[Sighting]:
        """Those that a form is about, in its order, as they are now."""
        ids = [one.id for one in everything[:MOST]]
        rows = {row.pk: row for row in self.get_queryset(request).filter(pk__in=ids)}
        sightings = [sighting_of(rows[id]) for id in ids if id in rows]
        return [one for one in sightings if one is not None]


def _resolve_form(sightings: Sequence[Sighting]) -> type[ResolveForm]:
    operation = any(one.record.door == "operation" for one in sightings)
    return ValueForm if operation else ResponseForm
