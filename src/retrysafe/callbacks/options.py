"""What may be said of receipts, and how it is checked: here, when they are declared."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, cast

from retrysafe._core import keys
from retrysafe._core.problems import Code, Problem
from retrysafe._core.times import Duration
from retrysafe.callbacks.webhooks import Webhook
from retrysafe.errors import ConfigurationError
from retrysafe.guard import Guard
from retrysafe.policy import (
    DAY,
    Abandoned,
    Effects,
    Failed,
    InFlight,
    Options,
    Retries,
    StoreDown,
)

E = TypeVar("E")

Part = str | Callable[[E], object]
"""A part of an event: its name, such as "run_id" or "data.id", or a function of the event."""

Compare = str | Sequence[str] | Callable[[E], object] | None
"""What must be the same in each delivery of an event: "all" of it, the parts with these names, what a
function of the event returns; `None`: nothing."""

Check = Callable[[E], "object | Awaitable[object]"]

RETENTION = 30 * DAY
"""Longer than any sender repeats a delivery by itself: Standard Webhooks' schedule ends after 75 hours,
Stripe's after three days, and a person who looks into it sends one again weeks later."""

RETRIES = Retries()


class CallbackOptions(TypedDict, total=False):
    """What may be said of the engine's policy; see the fields of `Policy` for the reasons."""

    effects: Effects
    failed: Failed
    abandoned: Abandoned
    in_flight: InFlight
    wait_for: Duration
    lease: Duration
    retention: Duration
    unknown_retention: Duration
    store_down: StoreDown
    keep_key: bool
    retry_on: tuple[type[Exception], ...]


class Default:
    """Stands for a part that is found by its usual name, if the event has one."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def __repr__(self) -> str:
        return repr(self.names[0] if len(self.names) == 1 else self.names)


ID, SUBJECT, CORRELATION = Default("callback_id"), Default("run_id"), Default("correlation_id")
DETAILS = Default("status", "result_uri")
"""As the callbacks of `retrysafe.callbacks.jobs` have them."""

Reader = tuple[str, ...] | Callable[[Any], object]


def check_name(what: str, said: str) -> Problem | None:
    """Refuse what cannot be an id, or whose ids they are."""
    found = keys.check_key(said)
    if isinstance(found, str) and found == said:
        return None
    reason = found.reason if isinstance(found, keys.BadKey) else "it has white space around it"
    return Problem("payload-invalid", f"The {what} of this event is not valid: {reason}.")


def source_of(source: object, webhook: Webhook | None) -> "str | Callable[[Any], object]":
    if source is None and webhook is not None:
        return webhook.source
    if isinstance(source, str) and source.strip():
        return _listed("source", source)
    if callable(source):
        if inspect.iscoroutinefunction(source):
            raise ConfigurationError("receipts(source=) is asynchronous: pass a plain function of the event")
        return cast("Callable[[Any], object]", source)
    raise ConfigurationError(
        f'receipts(source={source!r}): say whose ids they are, with a name such as "jobs" or a function of '
        "the event: two sources may have the same id"
    )


def name_of_receipts(name: object, source: object) -> str:
    if name is None and isinstance(source, str):
        return source
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(
            f"receipts(name={name!r}): where the source is found by a function, the receipts need a name to "
            'be counted and listed by, such as name="events"'
        )
    return _listed("name", name)


def _listed(what: str, said: str) -> str:
    """What is stored with every receipt, and printed where they are listed."""
    if isinstance(refused := check_name(what, said), Problem):
        shown = repr(said if len(said) <= 64 else f"{said[:63]}…")
        reason = refused.detail.partition(" is not valid: ")[2]
        raise ConfigurationError(f"receipts({what}={shown}) is not valid: {reason}")
    return said


def reader_of(what: str, said: object, where: str) -> Reader:
    if isinstance(said, Default):
        return said.names
    if said is None:
        return lambda _: None
    if callable(said):
        if inspect.iscoroutinefunction(said):
            raise ConfigurationError(f"{where}: {what}= is asynchronous: pass a plain function of the event")
        return cast("Reader", said)
    if isinstance(said, str) and said and all(part for part in said.split(".")):
        return tuple(said.split("."))
    raise ConfigurationError(
        f'{where}: {what}={said!r} is neither the name of a part of the event, such as "run_id" or '
        '"data.id", nor a function of the event'
    )


def check_details(details: object, where: str) -> None:
    if inspect.iscoroutinefunction(details):
        raise ConfigurationError(f"{where}: details= is asynchronous: pass a plain function of the event")
    if isinstance(details, Default) or callable(details):
        return
    if not _are_names(details):
        raise ConfigurationError(
            f'{where}: details={details!r} must be a tuple of names such as ("status", "result_uri"), or a '
            "function of the event that returns a mapping"
        )


def check_compare(compare: object, where: str) -> None:
    if (
        compare is None
        or compare == "all"
        or (callable(compare) and not inspect.iscoroutinefunction(compare))
    ):
        return
    if not _are_names(compare):
        raise ConfigurationError(
            f'{where}: compare={compare!r} must be "all", a tuple of names such as ("run_id", "status"), a '
            "function of the event, or None"
        )


def _are_names(said: object) -> bool:
    if isinstance(said, str) or not isinstance(said, Sequence):
        return False
    return all(isinstance(name, str) for name in cast("Sequence[object]", said))


def check_flag(what: str, said: object, where: str) -> bool:
    if not isinstance(said, bool):
        raise ConfigurationError(f"{where}: {what}={said!r} must be True or False")
    return said


def check_text(what: str, said: object, where: str) -> str:
    if not isinstance(said, str) or not said.strip():
        raise ConfigurationError(f"{where}: {what}={said!r} must be a text")
    return said


def check_retries(said: object, where: str) -> Retries:
    if not isinstance(said, Retries):
        raise ConfigurationError(
            f"{where}: retries={said!r} must be Retries(attempts=..., first=..., longest=...)"
        )
    if said.attempts < 1 or not 0 < said.first <= said.longest:
        raise ConfigurationError(
            f"{where}: {said!r} has to have at least one attempt, and pauses greater than zero of which the "
            "first is not longer than the longest"
        )
    return said


_INHERITED = ("lease", "keep_key", "store_down", "unknown_retention")
"""Of what the guard says: its other options are about requests."""


_TEXTS: Mapping[Code, str] = {
    "in-flight": "This event is being handled.",
    "key-reused": "This id was delivered with another payload.",
    "outcome-unknown": "An earlier delivery of this event was interrupted; what was done is not known.",
}
"""What is said of requests and their keys, in the words of deliveries."""


def compile_options(guard: Guard, options: Mapping[str, object], where: str) -> Any:  # noqa: ANN401 - Rules
    known = CallbackOptions.__annotations__
    if unknown := sorted(options.keys() - known.keys()):
        raise ConfigurationError(
            f"{where}: {unknown[0]} is not an option of receipts: there are {', '.join(sorted(known))}"
        )
    said: dict[str, Any] = {
        "effects": "repeatable",
        "retention": RETENTION,
        "in_flight": "reject",
        # An event whose background tasks are still to be run has not been handled.
        "background": "before",
    }
    of_guard = cast("dict[str, Any]", guard.options)
    said |= {name: of_guard[name] for name in _INHERITED if name in of_guard}
    if of_guard.get("effects") == "database":
        said["effects"] = "database"
    if guard.profile is not None and guard.profile.callbacks and "retention" in of_guard:
        said["retention"] = of_guard["retention"]
    wire = guard.wire._replace(
        statuses={"in-flight": 503, **guard.wire.statuses}, details={**_TEXTS, **guard.wire.details}
    )
    rules = guard.compile(cast("Options", said | dict(options)), wire)
    return rules._replace(outcome=rules.outcome._replace(refusals="release"))
