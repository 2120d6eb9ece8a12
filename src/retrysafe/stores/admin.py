"""What operators ask of a store and do to it: the other half of the contract.

Requests do not use this.  Everything is blocking, made for a process of its own such as the command line, and
may be slow; but what it changes is as atomic and as fenced as anything else.  A record is changed only
under the token and in the state that the operator saw, unfinished ones only once they are *abandoned*, and
the audit entry is written in the same step: there is no intervention without an entry, and no entry without
one.

Reading creates nothing: where there is no store yet, or no tables in it, all but `migrate`, `schema` and
`diagnose` raise `StoreUnavailable` or `SchemaMismatch`.  A record that cannot be read is left out of lists,
because there is nothing to show, and named in a warning of the logger `retrysafe.store`.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from retrysafe._core.headers import kept
from retrysafe._core.model import Door, Final, Parts, Purged, Record, Response

__all__ = [
    "UNFINISHED",
    "WITHOUT_KEY",
    "Admin",
    "Arming",
    "Calls",
    "Due",
    "Entry",
    "Finding",
    "Index",
    "Note",
    "Place",
    "Query",
    "Share",
    "Sighting",
    "Source",
    "Standing",
    "Statistics",
    "storable",
]

Standing = Literal["abandoned", "waiting", "in_progress", "completed", "failed"]
"""How a record stands: its state, told apart by whether the lease of an unfinished one has ended; and
"waiting" where a worker is to handle its payload, for the first time or again."""


Index = Literal["request-id", "scope"]
"""What records are found by without a scan, where it is asked for."""


class Query(NamedTuple):
    """Which records are meant; what is left out excludes nothing."""

    standings: frozenset[Standing] = frozenset()
    door: Door | None = None
    scope: Parts = ()
    """Parts that a record's scope has among its own."""
    action: str | None = None
    """A method, or the name of an operation."""
    target: str | None = None
    """A path as it was asked for, or what an operation is about; or a prefix that ends with `*`."""
    older: float | None = None
    """Created at least so many seconds ago."""
    younger: float | None = None
    """Created at most so many seconds ago."""
    key: str | None = None
    """The key as the client sent it."""
    id: str | None = None
    """The first digits of an identity, as logs have it."""
    request_id: str | None = None
    """That of the request which made it."""


class Sighting(NamedTuple):
    """A record as an operator sees it.  In a list its response has no body; `size` says how large it is."""

    record: Record
    standing: Standing
    size: int
    """Bytes of the stored body."""
    now: float
    """The store's clock at the moment of looking."""
    payload: int | None = None
    """Bytes of the stored payload of a delivery; `None`: there is none."""
    due_at: float | None = None
    """From when on a worker may handle it; `None`: no worker may."""


class Due(NamedTuple):
    """A delivery that a worker may handle now."""

    record: Record
    payload: bytes


class Share(NamedTuple):
    """What belongs to one route, or one scope, or all."""

    records: Mapping[Standing, int]
    size: int
    """Bytes of the stored bodies."""


class Source(NamedTuple):
    """What the callbacks of one source were."""

    events: int
    deliveries: int
    """Each event was delivered once at least; what is more than that are duplicates and retries."""
    handled: int
    seconds: float | None
    """From the first delivery of an event to its completion, on average; `None` where none is handled."""
    longest: float | None


class Place(NamedTuple):
    """Where calls were made."""

    door: str
    route: str
    """The template of a path, or the guard's own route; of an operation its action.  Empty where it was not
    known, and for what is beyond the first 500 routes of a process."""
    source: str
    """Of callbacks the name of their receipts; else empty."""


class Calls(NamedTuple):
    """How the calls at one place ended, as the services counted them."""

    verdicts: Mapping[str, int]
    since: float
    """When the first of them was counted."""
    last: Mapping[str, float]
    """When the last one of each verdict was counted."""


WITHOUT_KEY = frozenset({"keyless", "key-missing"})
"""Verdicts of calls without a key: they were served, or refused because a key is required."""


class Statistics(NamedTuple):
    now: float
    total: Share
    expired: int
    """Records that a purge would remove."""
    oldest_running: float | None
    """When the oldest record in progress, abandoned ones aside, was created."""
    oldest_abandoned: float | None
    by_door: Mapping[str, Share]
    by_route: Mapping[tuple[str, str], Share]
    """By method and path, those with the most records first.  Of operations and callbacks by action alone,
    with an empty target: theirs is an id, and there are as many as calls."""
    by_scope: Mapping[Parts, Share]
    """Those with the most records first."""
    verdicts: Mapping[str, int]
    """How calls ended, by verdict, as the services counted them.  A count reaches the store some seconds
    after the fact, and a process that is killed takes those seconds with it."""
    counted_since: float | None
    """When the first of these was counted."""
    by_source: Mapping[str, Source] = MappingProxyType({})
    """Callbacks by their action, which is the name of their source; those with the most events first."""
    oldest_due: float | None = None
    """Since when the payload that has waited longest could be handled; `None` where none waits."""
    calls: Mapping[Place, Calls] = MappingProxyType({})
    """Those places first that have the most calls without a key, and then the most calls.  Empty where the
    services cannot count by place, or the operator may not read it: `diagnose` says so."""


class Note(NamedTuple):
    """Who intervenes, and why."""

    by: str
    reason: str


class Entry(NamedTuple):
    """One line of the audit trail."""

    at: float
    by: str
    reason: str
    act: Literal["release", "resolve", "redrive", "purge", "arm"]
    outcome: str
    """The result: "released", "released, was failed 500", "completed 201", "1200 records removed"; of an
    operation "released, was failed", "completed"; of a store "armed"."""
    id: bytes | None
    """The record's identity; `None` where the act was not about one."""
    key: str | None
    scope: Parts
    action: str
    target: str
    request_id: str


def in_order(calls: Mapping[Place, Calls]) -> dict[Place, Calls]:
    """As `Statistics` have them."""

    def rank(found: tuple[Place, Calls]) -> tuple[int, int, Place]:
        place, calls = found
        without_key = sum(number for verdict, number in calls.verdicts.items() if verdict in WITHOUT_KEY)
        return -without_key, -sum(calls.verdicts.values()), place

    return dict(sorted(calls.items(), key=rank))


def release_outcome(seen: Record) -> str:
    """What the audit trail says of a release: a settled record's outcome is gone with it."""
    if seen.state == "in_progress":
        return "released"
    return f"released, was {_outcome(seen, seen.state, seen.response)}"


def resolve_outcome(seen: Record, final: Final) -> str:
    """What the audit trail says of a record that is settled by hand."""
    return _outcome(seen, final.state, final.response)


def redrive_outcome(seen: Record) -> str:
    """What the audit trail says of a payload that is to be handled again."""
    return f"to be handled again, was {'abandoned' if seen.state == 'in_progress' else seen.state}"


UNFINISHED = Final("failed", Response(500), omitted=True)
"""The outcome of an attempt that is to be done again and never said what came of it."""


def _outcome(seen: Record, state: str, response: Response | None) -> str:
    # What an operation ended with has no status that its caller would know.
    return state if response is None or seen.door == "operation" else f"{state} {response.status}"


def storable(final: Final) -> Final:
    """A response by hand as a handler's would be stored: without what belongs to one message or client."""
    status, headers, body = final.response
    if not 200 <= status <= 599:
        raise ValueError(
            f"{status} is not a valid status of a final response: expected 200 to 599. Nothing was changed"
        )
    headers = kept([(name.lower(), value) for name, value in headers])
    return final._replace(response=Response(status, headers, body))


class Finding(NamedTuple):
    """One result of a check, and what to do about it."""

    check: str
    level: Literal["ok", "warning", "problem"]
    found: str
    advice: str = ""


_LATE = 300.0
"""Seconds that a payload may wait before an operator should look for the worker: several of its rounds."""


def waiting_payloads(oldest_due: float, now: float) -> Finding:
    """What a check says of payloads that wait for a worker."""
    waited = now - oldest_due
    if waited < _LATE:
        return Finding("payloads", "ok", "payloads wait for a worker, none for long")
    return Finding(
        "payloads",
        "warning",
        f"a payload has been waiting for a worker for {round(waited)} s",
        "Look whether `retrysafe work` runs for its receipts",
    )


@runtime_checkable
class Arming(Protocol):
    """What the `Admin` of a store has besides, if the store can lose its records without knowing.

    Such a store has sentinels, and refuses everything with `StoreReset` while one of them is missing.
    """

    def missing_sentinels(self) -> int:
        """How many are missing; none, if the store is armed."""
        ...

    def arm(self, note: Note) -> None:
        """Set those that are missing, by an operator's decision."""
        ...


class Admin(Protocol):
    """Administration of a store, for operators."""

    def list(self, query: Query, limit: int = 100) -> Sequence[Sighting]:
        """Records that have not expired: abandoned ones first, the oldest of them first, then the youngest
        first.  Their responses have no bodies."""
        ...

    def find(self, query: Query, limit: int = 10) -> Sequence[Sighting]:
        """As `list`, with bodies."""
        ...

    def export(self, expiring: float | None = None, door: Door | None = None) -> Iterator[Record]:
        """Every record with its body, expired ones too, in the order of their ids; or only those that expire
        within so many seconds, or of one door.

        Not one view: what is created or removed while it runs may be in it or not.
        """
        ...

    def statistics(self, groups: int = 20) -> Statistics:
        """What there is, in one consistent view; of routes, scopes, sources and places the largest
        `groups`."""
        ...

    def expired(self, door: Door | None = None) -> int:
        """How many records a purge would remove now; of one door, if it is given."""
        ...

    def purge(self, limit: int, note: Note | None = None, door: Door | None = None) -> Purged:
        """Remove up to `limit` expired records in small steps, so that requests do not wait long; of one
        door, if it is given.

        With a note there is one entry for the whole call, which is correct after each step; none if nothing
        was removed.
        """
        ...

    def release(self, seen: Record, note: Note, *, settled: bool = False) -> bool:
        """Delete an abandoned record, so that the next call with its key runs.  False: it is not as it was
        seen.

        A checkpointed record too, which no retry may take over: an operator knows what the client has seen.
        With `settled` also one that was seen completed or failed, as long as it has that state and token; a
        lease that has not ended protects a record in either case.
        """
        ...

    def resolve(self, seen: Record, final: Final, note: Note) -> bool:
        """Settle an abandoned record with the outcome that the operator found, under a new token: its owner
        is fenced.  False: it has changed since it was seen.  The response is stored as `storable` returns it.

        It lasts for its retention from now on: its client was told not to retry, and may do so much later;
        and a held record may be past its expiry already.
        """
        ...

    def payload(self, id: bytes) -> bytes | None:
        """What was delivered, where it is stored with the record of this identity."""
        ...

    def due(self, action: str, limit: int = 10) -> Sequence[Due]:
        """Deliveries to this action that a worker may handle now, those first that could be handled first.

        A worker claims one by taking it over: of several that see the same, one gets it.
        """
        ...

    def redrive(self, seen: Record, note: Note) -> bool:
        """Have a worker handle the payload of a record that was seen failed, abandoned or waiting.

        False: it has changed since it was seen, or has no payload.
        It is failed then and due at once, under a new token: an owner that was taken for dead is fenced.  A
        failure stays as it is stored; one that had no outcome is `UNFINISHED`.
        """
        ...

    def audit(self, limit: int = 100, id: str | None = None) -> Sequence[Entry]:
        """What operators did, the latest first; to one record, if first digits of its identity are given."""
        ...

    def diagnose(self) -> Sequence[Finding]:
        """Check everything about this store that could be wrong.  An error is a finding, never an
        exception."""
        ...

    def migrate(self, indexes: Sequence[Index] = ()) -> str:
        """Apply the migrations that the tables lack, and say what was done.  May be repeated.

        And create these indexes, which not every store needs: each makes new requests a little slower.
        """
        ...

    def schema(self) -> str:
        """What `migrate` would run on an empty database, for people who apply it themselves."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...
