"""Releasing and resolving: what the operator saw, what they say about it, and what came of it.

A form carries what was seen of each record, as a digest of its token and its standing.  The record is looked
up again, has to be as it was seen, and the store changes it under that token and in that state alone.  So a
form that is sent twice, or an hour late, changes nothing that was not meant.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from django import forms
from django.utils.crypto import constant_time_compare, salted_hmac

from retrysafe._core.model import Final, Record
from retrysafe.cli import consequences
from retrysafe.cli.exits import Failure
from retrysafe.cli.format import clean, relative, short_id, standing_text
from retrysafe.cli.manual_response import (
    OperationOptions,
    Outcome,
    ResponseOptions,
    build_final,
    build_outcome,
)
from retrysafe.cli.words import status_text
from retrysafe.django.settings import guard
from retrysafe.errors import StoreError
from retrysafe.stores.admin import Admin, Note, Query, Sighting, Standing

RELEASED_AT_ONCE: frozenset[Standing] = frozenset({"abandoned", "failed"})
"""What may be released together.  A completed or a waiting one has to be looked at by itself."""

_SALT = "retrysafe.django.admin.seen"


class Seen(NamedTuple):
    """A record as a form has it."""

    id: str
    digest: str

    def __str__(self) -> str:
        return f"{self.id}.{self.digest}"

    def is_still(self, sighting: Sighting) -> bool:
        return constant_time_compare(self.digest, seen(sighting).digest)


def seen(sighting: Sighting) -> Seen:
    record = sighting.record
    known = f"{record.id.hex()}{record.token.hex()}{sighting.standing}"
    return Seen(record.id.hex(), salted_hmac(_SALT, known, algorithm="sha256").hexdigest())


_SEEN = re.compile(r"([0-9a-f]{64})\.([0-9a-f]{64})")


def read_seen(text: str) -> list[Seen]:
    """What a form says was seen; what it cannot say is left out."""
    return [Seen(*found.groups()) for word in text.split() if (found := _SEEN.fullmatch(word))]


def can_be_resolved(sighting: Sighting) -> bool:
    return sighting.standing in ("abandoned", "waiting") and sighting.record.state == "in_progress"


# --- what the operator says


class ReasonForm(forms.Form):
    """Why, for the audit trail."""

    reason = forms.CharField(
        max_length=1000,
        help_text="For the audit trail: how it is known, such as “not in the provider's list”.",
        widget=forms.TextInput(attrs={"class": "vTextField", "autocomplete": "off"}),
    )


_OUTCOMES = (("completed", "It was done"), ("failed", "It failed, or must not be tried again"))

_FORM = {"class": "vLargeTextField", "rows": 6, "spellcheck": "false"}


class ResolveForm(ReasonForm):
    """How it ended, and with it what retries get."""

    outcome = forms.ChoiceField(choices=_OUTCOMES, widget=forms.RadioSelect)

    def __init__(self, *given: Any, records: Sequence[Record] = (), **more: Any) -> None:
        super().__init__(*given, **more)
        self.records = records
        reason = self.fields.pop("reason")
        self.fields["reason"] = reason  # last, as it is said

    def final(self, record: Record) -> Final:
        """What to store; raises `Failure` for what would contradict itself."""
        raise NotImplementedError

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if self.errors:
            return cleaned
        for record in self.records:
            try:
                self.final(record)
            except Failure as failure:
                self._refuse(failure.message)
                break
        return cleaned

    def _refuse(self, message: str) -> None:
        """Under the field that the command line has as an option."""
        named = [name for name in re.findall(r"--([a-z-]+)", message) if name.replace("-", "_") in _FIELDS]
        field = _FIELDS[named[0].replace("-", "_")] if named else None
        said = re.sub(r"--([a-z-]+)", lambda found: _SAID.get(found[1], found[1]), message)
        self.add_error(field if field in self.fields else None, f"{said[:1].upper()}{said[1:]}.")

    @property
    def _outcome(self) -> Outcome:
        return "completed" if self.cleaned_data["outcome"] == "completed" else "failed"


_FIELDS = {
    "status": "status",
    "done": "status",
    "failed": "status",
    "body": "body",
    "header": "headers",
    "content_type": "content_type",
    "value": "value",
    "message": "message",
}
_SAID = {"done": "“it was done”", "failed": "“it failed”", "status": "the status", "value": "the value"} | {
    "body": "the body",
    "header": "the header",
    "content-type": "the content type",
    "message": "the message",
}


class ResponseForm(ResolveForm):
    """Of requests and callbacks."""

    status = forms.IntegerField(
        required=False,
        min_value=200,
        max_value=599,
        help_text="That retries get. If empty: what was sent already, else 200 if it was done and 500 if it "
        "failed.",
    )
    body_is = forms.ChoiceField(
        label="Body",
        choices=(
            ("missing", "not known: retries get a header that says that it is missing"),
            ("given", "the text below, or none if it is empty"),
        ),
        initial="missing",
        widget=forms.RadioSelect,
    )
    body = forms.CharField(
        label="Text", required=False, strip=False, widget=forms.Textarea(attrs=_FORM), max_length=2**20
    )
    content_type = forms.CharField(
        required=False,
        max_length=200,
        help_text="If empty: JSON or text, whichever the body is.",
        widget=forms.TextInput(attrs={"class": "vTextField", "autocomplete": "off"}),
    )
    headers = forms.CharField(
        required=False,
        help_text="One per line, as in “Location: /orders/7”.",
        widget=forms.Textarea(attrs={**_FORM, "rows": 2}),
    )

    def final(self, record: Record) -> Final:
        given = self.cleaned_data
        body = given["body"].replace("\r\n", "\n").encode() if given["body_is"] == "given" else None
        options = ResponseOptions(
            given["status"],
            body,
            tuple(line.strip() for line in given["headers"].splitlines() if line.strip()),
            given["content_type"] or None,
        )
        return build_final(self._outcome, options, record)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if cleaned.get("body") and cleaned.get("body_is") == "missing":
            self.add_error("body", "There is a text, and the body is said not to be known: choose one.")
        return cleaned


class ValueForm(ResolveForm):
    """Of operations."""

    value = forms.CharField(
        required=False,
        strip=False,
        help_text="If it was done: what it returned, as JSON. If empty, retries learn that it was done, and "
        "that its value is missing.",
        widget=forms.Textarea(attrs=_FORM),
    )
    message = forms.CharField(
        required=False,
        max_length=1000,
        help_text="If it failed: what retries are told.",
        widget=forms.TextInput(attrs={"class": "vTextField", "autocomplete": "off"}),
    )

    def final(self, record: Record) -> Final:  # noqa: ARG002 - as any
        given = self.cleaned_data
        value = given["value"].encode() if given["value"].strip() else None
        return build_outcome(self._outcome, OperationOptions(value, given["message"] or None))


# --- what is done

Act = Callable[[Admin, Record, Note], bool]


class Ended(NamedTuple):
    """What came of it."""

    done: list[Sighting]
    changed: list[str]
    """Those that were not as they had been seen: what each is now."""
    trouble: StoreError | None


def release(admin: Admin, record: Record, note: Note) -> bool:
    return admin.release(record, note, settled=record.state != "in_progress")


def resolve(form: ResolveForm) -> Act:
    def act(admin: Admin, record: Record, note: Note) -> bool:
        return admin.resolve(record, form.final(record), note)

    return act


def intervene(everything: Sequence[Seen], act: Act, note: Note) -> Ended:
    """Change each that is still as it was seen."""
    done: list[Sighting] = []
    changed: list[str] = []
    try:
        with closing(guard().store.open_admin()) as admin:
            for one in everything:
                found = _look(admin, one)
                if found is not None and one.is_still(found) and act(admin, found.record, note):
                    done.append(found)
                else:
                    changed.append(_now(admin, one))
    except StoreError as trouble:
        return Ended(done, changed, trouble)
    return Ended(done, changed, None)


def _look(admin: Admin, one: Seen) -> Sighting | None:
    found = admin.list(Query(id=one.id), 1)
    return found[0] if found else None


def _now(admin: Admin, one: Seen) -> str:
    """What a record is that is not as it was seen, and who made it so if an operator did."""
    found = _look(admin, one)
    state = "it no longer exists" if found is None else f"it is {described(found)}"
    entries = admin.audit(1, one.id)
    if not entries or (found is not None and found.record.updated_at > entries[0].at):
        return f"{short_id(bytes.fromhex(one.id))}: {state}"
    [entry] = entries
    ago = "" if found is None else f" {relative(entry.at, found.now)}"
    return f"{short_id(bytes.fromhex(one.id))}: {state} ({clean(entry.by)}{ago}: {clean(entry.outcome)})"


def described(sighting: Sighting) -> str:
    """A record's standing and status: `completed (201)`."""
    status = status_text(sighting.record) if sighting.record.state != "in_progress" else ""
    return f"{standing_text(sighting.standing)}{f' ({status})' if status else ''}"


def consequence_of_release(sightings: Sequence[Sighting]) -> str:
    if len(sightings) == 1:
        return consequences.of_release(sightings[0])
    return consequences.of_releases(None, sightings)
