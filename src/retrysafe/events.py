"""What observers are told: one event for every request that concerned us, from one place.

Counters, traces and alerts hang on `on_event`.  An event carries no key and no body, so it is fit for
metrics and logs as it is.  An observer that raises is logged and otherwise ignored: watching a payment must
not break it.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from retrysafe._core.model import Claim, Door, Parts, Record, Request
from retrysafe._core.problems import CATALOGUE, Problem
from retrysafe._core.steps import Result, Verdict
from retrysafe._runtime.log import Log

log = Log("retrysafe")


class Event(NamedTuple):
    verdict: Verdict | Literal["keyless"]
    """How it ended; "keyless": served without protection on a route that is to require a key."""
    door: Door
    action: str
    target: str
    status: int | None
    """What the client was told; `None` where nothing was, or where it had flowed already."""
    attempt: int = 0
    """Which execution of the handler it was or replays; 0 where there was none."""
    scope: Parts = ()
    id: str = ""
    """The first digits of the record's identity, to find its lines in the log."""


Observer = Callable[[Event], object]


class Observers:
    def __init__(self, on_event: Observer | None) -> None:
        self._on_event = on_event
        self._said: set[tuple[str, str, str]] = set()

    def tell(self, event: Event) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception:
            log.exception("on_event raised for %s", event.verdict)

    def ended(self, request: Request, claim: Claim | None, answer: Result) -> None:
        """A request that concerned us has come to its end."""
        if self._on_event is None and (
            answer.verdict == "completed" or (answer.verdict == "replayed" and not _is_failure(answer))
        ):
            return  # nobody to tell, and nothing to say
        id = claim.id.hex()[:8] if claim else ""
        if answer.verdict != "completed":
            self._remark(request, id, answer)
        if self._on_event is not None:
            self.tell(
                Event(
                    answer.verdict,
                    "request",
                    request.method,
                    request.path,
                    _status(answer),
                    answer.attempt,
                    claim.scope if claim else (),
                    id,
                )
            )

    def _remark(self, request: Request, record: str, answer: Result) -> None:
        """Say in the log what an operator has to know, and the first time what they could change."""
        match answer:
            case Result("replayed", Record(state="failed")):
                self.once(
                    request.method,
                    request.path,
                    'a failure is replayed (failed="replay"); where running it again does no harm, '
                    'effects="repeatable" or failed="retry" lets the retry run',
                )
            case Result("outcome-unknown"):
                self.once(
                    request.method,
                    request.path,
                    'the outcome of an abandoned request is unknown, and it is held (abandoned="hold"); '
                    'where running it again does no harm, effects="repeatable" or abandoned="retry" '
                    "lets the retry run",
                )
            case Result("unstored", trouble=trouble):
                log.error("record %s: not stored before its lease ended: %s", record, trouble)
            case Result("unprotected", trouble=trouble):
                log.error("record %s: ran unprotected: %s", record, trouble)
            case Result("store-unavailable", trouble=trouble):
                log.error("record %s: refused with 503: %s", record, trouble)
            case _:
                pass

    def keyless(self, method: str, path: str) -> None:
        """A request without a key was served, on a route that is going to require one."""
        self.once(method, path, "a request without a key was served, which is going to be required")
        self.tell(Event("keyless", "request", method, path, None))

    def once(self, method: str, path: str, remark: str, *details: object) -> None:
        """Log a remark the first time that it applies to a route."""
        said = (method, path, remark)
        # Paths with ids in them are as many as there are ids: enough was said after a few.
        if said not in self._said and len(self._said) < 100:
            self._said.add(said)
            log.warning("%s %r: " + remark, method, path, *details)


def _is_failure(answer: Result) -> bool:
    return isinstance(answer.reply, Record) and answer.reply.state == "failed"


def _status(answer: Result) -> int | None:
    match answer.reply:
        case None:
            return None
        case Problem(code):
            return CATALOGUE[code].status
        case Record(response=response):
            return response.status if response else None
        case response:
            return response.status
