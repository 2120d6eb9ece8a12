"""Why an operation was not done, or a delivery not handled: one exception per reason, with the same codes.

Refused
├── KeyRefused         key-missing, key-invalid, principal-required: nothing was done
├── InFlight           in-flight: the first call with this key is still running
├── KeyReused          key-reused: the key belongs to a call with other arguments
├── PreviouslyFailed   previously-failed: the first call failed, and is not made again
├── OutcomeUnknown     outcome-unknown: the first call was interrupted, how far it got is not known
├── Undone             not-done, handler-failed: the transaction was not committed, nothing is left of it
├── Unavailable        store-unavailable, store-reset, draining: try again later
├── PayloadRefused     payload-invalid, body-too-large, signature-invalid: what was delivered cannot be taken
└── SubjectUnknown     subject-unknown: the run or resource of a delivery does not exist
"""

from collections.abc import Mapping
from typing import NamedTuple

from retrysafe._core.model import Door
from retrysafe._core.problems import Code, Problem
from retrysafe.errors import RetrysafeError
from retrysafe.policy import Rules

_TEXTS: Mapping[Code, tuple[str, str]] = {
    "key-missing": ("No key was passed.", "Pass a key, and the same one with every retry."),
    "principal-required": (
        "It is not known whose key this is: its scope was found to be nothing.",
        "Return the owner's id from the scope function, or pass scope=.",
    ),
    "in-flight": (
        "The first call with this key is still running.",
        "Call again after retry_after seconds with the same key, or wait for it with wait=.",
    ),
    "outcome-unknown": (
        "An earlier call with this key was interrupted, and what it did is not known.",
        "Check what it was about, or ask the operator. Do not use a new key before you know.",
    ),
    "previously-failed": (
        "The first call with this key failed. It is not made again.",
        "Check what it was about, then use a new key to try again.",
    ),
    "key-reused": (
        "This key was used for another call: of another action or target, or with other arguments.",
        "Use a new key for a new call.",
    ),
    "not-done": ("Nothing was done, or it was undone.", "Call again with the same key."),
    "handler-failed": ("The transaction was not committed, and nothing is left of it.", "See the cause."),
    "store-unavailable": ("", "Call again after retry_after seconds with the same key."),
    "store-reset": ("The store has lost its records, or is new.", "See what `retrysafe doctor` says of it."),
    "draining": ("This process is shutting down.", "Call again, in another process, with the same key."),
}
"""What happened and what to do about it, in the words of a call.  Empty: as the occurrence says."""

_DELIVERY_TEXTS: Mapping[Code, tuple[str, str]] = {
    "payload-invalid": ("", "Correct it, or say with id= where the id is."),
    "signature-invalid": (
        "",
        "Pass the headers and bytes as they came, soon; what was verified before is passed as what it says.",
    ),
    "body-too-large": ("", "Deliver a reference to what is large, or raise max_payload."),
    "in-flight": ("This event is being handled.", "Do not acknowledge it: have it delivered again."),
    "outcome-unknown": (
        "An earlier delivery of this event was interrupted, and what was done is not known.",
        "Look at its receipt with `retrysafe ls --door callback`, and settle or release it.",
    ),
    "previously-failed": (
        "An earlier delivery of this event failed. It is not handled again.",
        "Release its receipt, or give the receipts another policy.",
    ),
    "key-reused": (
        "This id was delivered with another payload.",
        "Find out why its sender uses it twice; or say with compare= which differences matter.",
    ),
    "not-done": ("Nothing was done, or it was undone.", "Have it delivered again."),
    "handler-failed": ("The transaction was not committed, and nothing is left of it.", "See the cause."),
    "store-unavailable": ("", "Do not acknowledge it: have it delivered again."),
    "store-reset": ("The store has lost its records, or is new.", "See what `retrysafe doctor` says of it."),
    "draining": ("This process is shutting down.", "Do not acknowledge it: have it delivered again."),
}
"""The same in the words of a delivery."""


class Failure(NamedTuple):
    """How a call failed."""

    type: str | None
    """The name of the exception's class; `None` where it was not stored."""
    message: str
    at: str | None = None
    """When, by the store's clock: ISO 8601, in UTC."""


class Refused(RetrysafeError):
    """The function was not called, or what it did was undone."""

    def __init__(
        self,
        problem: Problem,
        rules: Rules,
        what: str,
        failure: Failure | None = None,
        door: Door = "operation",
    ) -> None:
        kind = rules.rendering.problems.kinds[problem.code]
        texts = _DELIVERY_TEXTS if door == "callback" else _TEXTS
        text, advice = texts.get(problem.code, ("", kind.advice))
        detail = rules.wire.details.get(problem.code) or text or problem.detail
        retry = True if problem.undone else kind.retry
        happened = f" ({failure.type}: {failure.message})" if failure is not None and failure.type else ""
        super().__init__(f"{what}: {detail}{happened} {advice}")
        self.problem = problem
        self.code: Code = problem.code
        """The same word as in problems of requests: it does not change."""
        self.status: int = kind.status
        """What a request would be refused with."""
        self.title: str = kind.title
        self.detail: str = detail
        self.retry: bool | None = retry
        """Whether the same call with the same key may be made again by itself; `None`: not as it is."""
        self.retry_after: float | None = problem.retry_after if retry else None
        """After how many seconds."""
        self.failure = failure
        """How the first call failed, where that is the reason."""

    def __reduce__(self) -> tuple[object, ...]:
        """It can be sent to another process, as from a worker to its pool; the rules of its guard cannot.

        Nor is the record of the key, whose value is not for a caller that was refused.
        """
        state = {**self.__dict__, "problem": self.problem._replace(first=None)}
        return _rebuilt, (type(self), self.args, state)


def _rebuilt(kind: type[Refused], args: tuple[object, ...], state: dict[str, object]) -> Refused:
    refused = kind.__new__(kind, *args)
    refused.__dict__.update(state)
    return refused


class KeyRefused(Refused, ValueError):
    """What was passed is not a key, or it is not known whose key it is."""


class InFlight(Refused):
    """The first call with this key is still running."""


class KeyReused(Refused):
    """The key was used for a call of another action or target, or with other arguments."""


class PreviouslyFailed(Refused):
    """The first call with this key failed; `failure` says how."""


class OutcomeUnknown(Refused):
    """The first call was interrupted, and how far it got is not known."""


class Undone(Refused):
    """What the call wrote was not committed."""


class Unavailable(Refused):
    """The store cannot be reached, or this process is shutting down."""


class PayloadRefused(Refused, ValueError):
    """What was delivered, the id in it, or its signature is not what the receipts take."""


class SubjectUnknown(Refused, LookupError):
    """The run or resource that a delivery is about does not exist."""


_KINDS: Mapping[Code, type[Refused]] = {
    "key-missing": KeyRefused,
    "key-invalid": KeyRefused,
    "principal-required": KeyRefused,
    "in-flight": InFlight,
    "key-reused": KeyReused,
    "previously-failed": PreviouslyFailed,
    "outcome-unknown": OutcomeUnknown,
    "not-done": Undone,
    "handler-failed": Undone,
    "store-unavailable": Unavailable,
    "store-reset": Unavailable,
    "draining": Unavailable,
    "payload-invalid": PayloadRefused,
    "body-too-large": PayloadRefused,
    "signature-invalid": PayloadRefused,
    "subject-unknown": SubjectUnknown,
}


def refusal(
    problem: Problem, rules: Rules, what: str, failure: Failure | None = None, door: Door = "operation"
) -> Refused:
    """The exception for a problem; `what` names the operation, or the receipts."""
    return _KINDS[problem.code](problem, rules, what, failure, door)
