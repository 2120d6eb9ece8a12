"""Named policies: what a published API promises its clients, as data.

    guard = Guard("sqlite:///keys.db", scope=scopes.user, profile="erp")

A profile is a `Wire`, `Options`, the environment variables that its operators know, and the paths that a
middleware covers.  The environment overrides a profile, and a keyword of `Guard(…)` overrides both.  Where
the system that a profile follows can lose an effect or show it to another user, the profile does not; what
the original did is an option (`docs/profiles.md` says which).  Nothing is decided here.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from retrysafe import scopes
from retrysafe._core.problems import Code, ProblemDetails
from retrysafe.errors import ConfigurationError
from retrysafe.policy import DAY, HOUR, MIB, Options, Wire

__all__ = ["PROFILES", "Profile", "Variable", "get", "wire"]


class Variable(NamedTuple):
    """What a variable of the environment says, and how its text is read."""

    option: str
    """The option that it sets."""
    convert: Callable[[str], object]
    """Makes the option's value of the text; raises `ValueError` if it is not one."""
    expected: str
    """What the text has to be, for the message to an operator whose text is not."""


class Profile(NamedTuple):
    """A wire and a policy under one name."""

    name: str
    source: str
    """What it follows."""
    wire: Wire = Wire()
    options: Options = {}  # noqa: RUF012 - never changed: a guard puts its own beside it
    environment: Mapping[str, Variable] = MappingProxyType({})
    """By the name of a variable.  Each overrides an option of the profile."""
    paths: tuple[str, ...] | None = None
    """What a middleware covers that is given no `paths`; `None`: all of them."""
    cleanup_interval: float | None = None
    """Seconds between two cleanups of a store that the guard opens by its URL; `None`: the store's own."""
    callbacks: bool = False
    """Whether its retention is that of receipts, and not of requests."""

    def read(self, environment: Mapping[str, str]) -> Options:
        """The profile's options as this environment has them."""
        # Checked by `compile_rules`, as all that users say.
        return self._read({**self.options}, environment, of_store=False)  # type: ignore[return-value]

    def read_cleanup_interval(self, environment: Mapping[str, str]) -> float | None:
        """The same for the cleanup of a store that the guard opens."""
        said = self._read({_CLEANUP: self.cleanup_interval}, environment, of_store=True)
        return said[_CLEANUP]  # type: ignore[return-value]  # what its variable's `convert` makes

    def _read(
        self, said: dict[str, object], environment: Mapping[str, str], *, of_store: bool
    ) -> dict[str, object]:
        for name, variable in self.environment.items():
            if (variable.option == _CLEANUP) is not of_store:
                continue
            if (text := environment.get(name)) is None:
                continue
            try:
                said[variable.option] = variable.convert(text)
            except ValueError:
                raise ConfigurationError(
                    f"the environment variable {name} is {text!r}: expected {variable.expected}. "
                    f"Correct it, or unset it for the default of the profile {self.name}"
                ) from None
        return said


_CLEANUP = "cleanup_interval"
"""The option of a store that a profile may set: all others are a guard's."""

_AMOUNT = re.compile(r"[0-9]{1,7}(\.[0-9]{1,6})?")


def _amount_of(unit: float) -> Callable[[str], float]:
    """Reads a number of these units, as operators write it, in seconds.

    Zero is refused: as a retention it would be a key that protects nothing, as an interval a busy loop.
    """

    def convert(text: str) -> float:
        if not _AMOUNT.fullmatch(text.strip()) or not (found := float(text) * unit):
            raise ValueError
        return found

    return convert


def _retention_in(name: str) -> Mapping[str, Variable]:
    expected = 'a number of hours greater than zero, such as "24" or "0.5"'
    return MappingProxyType({name: Variable("retention", _amount_of(HOUR), expected)})


_WITHOUT_DELETE = frozenset({"POST", "PUT", "PATCH"})

IETF = Profile(
    "ietf",
    "draft-ietf-httpapi-idempotency-key-header-07",
    # Its statuses (section 2.7) are the library's own: 400, 409 and 422.
    Wire(),
)

# By type, as Stripe's SDKs tell errors apart.  Their own `idempotency_error` is about a key that is known.
_STRIPE_TYPES: dict[Code, str] = {
    "key-reused": "idempotency_error",
    "in-flight": "idempotency_error",
    "outcome-unknown": "idempotency_error",
    "previously-failed": "idempotency_error",
}


def _stripe_error(problem: ProblemDetails) -> dict[str, object]:
    """Stripe's envelope: `{"error": {"type", "message"}}`, with a `code` where there is one to act on."""
    by_status = "api_error" if problem.status >= 500 else "invalid_request_error"
    error: dict[str, object] = {
        "type": _STRIPE_TYPES.get(problem.code, by_status),
        "message": problem.detail,
    }
    if problem.code == "in-flight":
        error["code"] = "idempotency_key_in_use"
    elif problem.code != "key-reused":
        error["code"] = problem.code.replace("-", "_")
    return {"error": error}


STRIPE = Profile(
    "stripe",
    "Stripe's API, v1",
    Wire(
        original_id_header="Original-Request",
        keyed_id_header="Original-Request",
        request_id_header="Request-Id",
        # The first is for the SDKs of other vendors.
        should_retry_headers=("X-Should-Retry", "Stripe-Should-Retry"),
        statuses=MappingProxyType({"key-reused": 400}),
        render_problem=_stripe_error,
    ),
    {"failed": "replay", "retention": DAY},
)

VALIDATION_API = Profile(
    "validation-api",
    "the API of a validation service (Django)",
    Wire(),
    {"retention": DAY},
    _retention_in("IDEMPOTENCY_KEY_TTL_HOURS"),
)

ERP = Profile(
    "erp",
    "the API of an ERP (Laravel)",
    Wire(
        methods=_WITHOUT_DELETE,
        replayed_header="X-Idempotent-Replayed",
        echo_key=True,
        statuses=MappingProxyType({"key-invalid": 422}),
    ),
    {"retention": DAY, "max_response": MIB},
    _retention_in("IDEMPOTENCY_TTL_HOURS"),
)

AGENTS = Profile(
    "agents",
    "a platform for agents (ASGI)",
    Wire(
        key_header="X-Idempotency-Key",
        methods=_WITHOUT_DELETE,
        details=MappingProxyType({"in-flight": "Request is being processed"}),
    ),
    {"failed": "replay", "retention": DAY},
    paths=("/api/*",),
)

WORKFLOW_CONTROL = Profile(
    "workflow-control",
    "the control of workflows (Elixir)",
    Wire(
        longest_key=200,
        # There, all that is in the way of a key is a conflict.
        statuses=MappingProxyType({"key-reused": 409}),
        completed_word="succeeded",
    ),
    {"failed": "conflict", "retention": 7 * DAY, "retention_from": "update"},
    MappingProxyType(
        {
            "IDEMPOTENCY_TTL_DAYS": Variable(
                "retention", _amount_of(DAY), 'a number of days greater than zero, such as "7" or "0.5"'
            ),
            "IDEMPOTENCY_CLEANUP_INTERVAL_SECONDS": Variable(
                _CLEANUP, _amount_of(1.0), 'a number of seconds greater than zero, such as "300"'
            ),
        }
    ),
    cleanup_interval=300.0,
)

JOB_CALLBACKS = Profile(
    "job-callbacks",
    "the callbacks of jobs (Cloud Run)",
    # To the sender of a callback a conflict is an end, and it is to come again.
    Wire(statuses=MappingProxyType({"in-flight": 503})),
    {"scope": scopes.service("callbacks"), "retention": 30 * DAY},
    MappingProxyType(
        {
            "CALLBACK_RECEIPT_TTL_DAYS": Variable(
                "retention", _amount_of(DAY), 'a number of days greater than zero, such as "30" or "0.5"'
            )
        }
    ),
    callbacks=True,
)

PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        profile.name: profile
        for profile in (IETF, STRIPE, VALIDATION_API, ERP, AGENTS, WORKFLOW_CONTROL, JOB_CALLBACKS)
    }
)


def get(name: str) -> Profile:
    """The profile of this name."""
    found = PROFILES.get(name) if isinstance(name, str) else None
    if found is None:
        raise ConfigurationError(f"profile={name!r} is not a profile: there are {', '.join(PROFILES)}")
    return found


def wire(name: str) -> Wire:
    """The wire of a profile, to change a part of it: `Guard(…, wire=profiles.wire("ietf")._replace(…))`."""
    return get(name).wire
