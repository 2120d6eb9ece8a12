"""What observers are told: one event for every call that concerned a guard, from one place.

Counters, traces and alerts hang on `on_event`.  An event carries no key and no body, so it is fit for metrics
and logs as it is.  An observer that raises is logged and otherwise ignored: watching a payment must not break
it.
"""

from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import Literal, NamedTuple, Protocol

from retrysafe._core.keys import mask_scope
from retrysafe._core.model import Claim, Door, Parts, Record
from retrysafe._core.model import Counted as Counted
from retrysafe._core.steps import Result, Verdict
from retrysafe._runtime.log import Log
from retrysafe.errors import UnreadableRecord

log = Log("retrysafe")

SLOW_BACKGROUND = 0.5
"""Seconds after the last byte of a response that a client does not expect to wait for."""


class Event(NamedTuple):
    verdict: Verdict | Literal["keyless"]
    """How it ended; "keyless": served without protection, on a route that takes keys."""
    door: Door
    action: str
    target: str
    status: int | None
    """What the client was sent; `None` where nothing was, where it had flowed already, and of operations."""
    attempt: int = 0
    """Which execution of the handler or function it was or replays; 0 where there was none."""
    scope: Parts = ()
    id: str = ""
    """The first digits of the record's identity, to find its lines in the log."""
    route: str = ""
    """The template of the path where the framework knows it, else the guard's own route; of an operation its
    action; else empty."""
    source: str = ""
    """Where a callback comes from: the name of its receipts."""
    seconds: float | None = None
    """From its bid for the key to its end; `None` where it made none."""


Observer = Callable[[Event], object]


class Observed(Protocol):
    """A call, as observers see it."""

    claim: Claim | None
    background: float
    """For how many seconds the caller waited for work after the last byte of the response."""

    @property
    def door(self) -> Door: ...
    @property
    def action(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def route(self) -> str: ...
    @property
    def source(self) -> str: ...
    def owner(self) -> str:
        """Where the owner of a key is looked for, for an operator."""
        ...

    def status(self, result: Result) -> int | None:
        """What the client is sent."""
        ...


class Observers:
    def __init__(self, on_event: Observer | None) -> None:
        self._on_event = on_event
        self._logged: set[tuple[str, str, str]] = set()
        self._outage = _Outage()

    def ended(self, call: Observed, result: Result, seconds: float | None = None) -> None:
        """A call has come to its end."""
        verdict = result.verdict
        if call.background > SLOW_BACKGROUND:
            self.once(
                *_called(call),
                "the client waited for work after the last byte of its response (%.1f s this time); if a "
                'failure of that work does not concern the client, background="after" responds first',
                call.background,
            )
        if verdict == "replayed":
            reply = result.reply
            is_remarkable = isinstance(reply, Record) and reply.state == "failed"
        else:
            is_remarkable = verdict not in ("completed", "accepted", "waiting")
        if is_remarkable or self._outage.lasts:
            self._log(call, result)
        if self._on_event is not None:
            claim = call.claim
            self._tell(
                Event(
                    verdict,
                    call.door,
                    call.action,
                    call.target,
                    call.status(result),
                    result.attempt,
                    mask_scope(claim.scope) if claim else (),
                    _short_id(claim),
                    call.route,
                    call.source,
                    seconds,
                )
            )

    def keyless(
        self, action: str, target: str, route: str, *, warn: bool, door: Door = "request", source: str = ""
    ) -> None:
        """A request without a key is served, on a route that takes keys; or a call of a tool; or an event
        without an id."""
        if door == "callback":
            self.once(door, source, "an event without an id was handled, as if there were no receipts")
        elif warn:
            self.once(action, route or target, "a request without a key was served; a key is to be required")
        if self._on_event is not None:
            self._tell(Event("keyless", door, action, target, None, route=route, source=source))

    def once(self, action: str, target: str, remark: str, *details: object) -> None:
        """Log a remark the first time that it applies to a route, or to an operation."""
        logged = (action, target, remark)
        # Paths with ids in them are as many as there are ids: after a hundred, an operator knows.
        if logged not in self._logged and len(self._logged) < 100:
            self._logged.add(logged)
            log.warning("%s %r: " + remark, action, target, *details)

    def _tell(self, event: Event) -> None:
        assert self._on_event is not None
        try:
            self._on_event(event)
        except Exception:
            log.exception("on_event raised for %s", event.verdict)

    def _log(self, call: Observed, result: Result) -> None:
        """Log what an operator has to know, and the first time what they could change."""
        id = _short_id(call.claim)
        match result:
            case Result("store-unavailable", trouble=UnreadableRecord() as damage):
                log.error("record %s: refused as store-unavailable: %s", id, damage)
                return
            case Result("store-unavailable" | "store-reset" | "unprotected", trouble=trouble) if (
                trouble is not None
            ):
                self._outage.note(id, result.verdict, trouble)
                return
            case Result("unstored", trouble=trouble):
                log.error("record %s: not stored before its lease ended: %s", id, trouble)
                return
            case Result("replayed", Record(state="failed")):
                self.once(
                    *_called(call),
                    'a failure is replayed (failed="replay"); where running it again does no harm, '
                    'effects="repeatable" or failed="retry" lets the retry run',
                )
            case Result("outcome-unknown"):
                self.once(
                    *_called(call),
                    'its worker died or lost the store, and the unknown outcome is held (abandoned="hold"); '
                    'where running it again does no harm, effects="repeatable" or abandoned="retry" '
                    "lets the retry run",
                )
            case Result("key-reused") if call.door == "callback":
                log.warning("record %s: an id of %s was delivered with another payload", id, call.source)
            case Result("principal-required"):
                self.once(*_called(call), "refused: the owner of a key was not found in %s", call.owner())
            case _:
                pass
        if self._outage.lasts and call.claim is not None:
            self._outage.end()


class _Outage:
    """One log line when the store cannot be used, and one with a count when it can be again.

    A line for every refused call would fill the log at the worst of times.
    """

    lasts = False

    def __init__(self) -> None:
        self._lock = Lock()
        self._began = 0.0
        self._counts = {"store-unavailable": 0, "store-reset": 0, "unprotected": 0}

    def note(self, id: str, verdict: str, trouble: Exception) -> None:
        with self._lock:
            self._counts[verdict] += 1
            if self.lasts:
                return
            self.lasts = True
            self._began = monotonic()
        if verdict == "unprotected":
            log.error(
                "record %s: ran unprotected: %s (until it is back, others are only counted)", id, trouble
            )
        else:
            log.error(
                "record %s: refused as %s: %s (until it is back, others are only counted)",
                id,
                verdict,
                trouble,
            )

    def end(self) -> None:
        with self._lock:
            if not self.lasts:
                return
            self.lasts = False
            lasted = monotonic() - self._began
            ran = self._counts["unprotected"]
            refused = sum(self._counts.values()) - ran
            self._counts = dict.fromkeys(self._counts, 0)
        log.warning(
            "the store can be used again after %.1f s: %d calls were refused, %d ran unprotected",
            lasted,
            refused,
            ran,
        )


def _called(call: Observed) -> tuple[str, str]:
    """What a line is about: a method and a route, or an operation and its name."""
    if call.door != "request":
        return call.door, call.action
    return call.action, call.route or call.target


def _short_id(claim: Claim | None) -> str:
    return claim.id.hex()[:8] if claim else ""
