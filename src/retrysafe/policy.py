"""What may be chosen: the engine's policy, the rules of the request door, and the wire.

Four small values, because different people choose them: `Policy` says where the effects are, `OutcomeRules`
what is stored of an outcome, `RequestRules` what an endpoint asks of a request, `Wire` what an API publishes.
Every default argues for itself; all of them are for money.  `compile_rules` checks what the user said and
makes the values; nothing downstream has to check again.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import isfinite
from typing import Any, Literal, NamedTuple, TypedDict, get_args

from retrysafe._core.fingerprint import Fingerprint
from retrysafe._core.fingerprint import check as check_fingerprint
from retrysafe._core.headers import is_name
from retrysafe._core.model import Request
from retrysafe.errors import ConfigurationError
from retrysafe.scopes import ScopeRule

Effects = Literal["outside", "repeatable", "database"]
Failed = Literal["replay", "retry", "conflict"]
Abandoned = Literal["hold", "retry"]
InFlight = Literal["reject", "wait"]
StoreDown = Literal["refuse", "run"]
Background = Literal["before", "after"]
Refusals = Literal["store", "release"]
Required = bool | Literal["warn"]
Paths = Sequence[str] | Callable[[str], bool]

HOUR = 3600.0
DAY = 24 * HOUR
MIB = 1024 * 1024


class Policy(NamedTuple):
    """How the engine treats a key, through whichever door it came."""

    effects: Effects = "outside"
    """Where the effects are. "outside": nobody can take them back or knows whether they happened.
    "database": in the database of the records, so that both are committed together."""
    failed: Failed = "replay"
    """A failure says nothing about its effect; running it again could be the second charge."""
    abandoned: Abandoned = "hold"
    """The same for an owner that died: say "unknown" rather than guess."""
    in_flight: InFlight = "reject"
    """409 at once: a waiting client holds a connection, and SDKs retry a 409 by themselves."""
    wait_for: float = 10.0
    """Longer than most handlers and shorter than most clients' and proxies' patience."""
    lease: float = 30.0
    """How long a dead worker blocks its key; renewed at a third, so two renewals may fail."""
    retention: float = DAY
    """Covers every retry schedule of an interactive client, and is what Stripe promises."""
    unknown_retention: float = 30 * DAY
    """An unknown outcome waits for a person: a month survives holidays and month-end."""
    store_down: StoreDown = "refuse"
    """A claim that was not confirmed protects nobody."""
    keep_key: bool = True
    """Operators search by key; without it only the digest is stored."""


class OutcomeRules(NamedTuple):
    """What is stored of an outcome, through whichever door it came."""

    max_response: int = MIB
    """What one record may cost; larger responses leave a tombstone."""
    no_store: bool = False
    """For responses that carry a secret: the retry gets status and headers, never the body."""
    retry_on: tuple[type[Exception], ...] = ()
    """Exceptions that are known to mean that nothing happened."""
    refusals: Refusals = "store"
    """Whether a 4xx settles the effect, as it does for a request, or only success does: a delivery that was
    refused is delivered again, and then to be handled."""


class RequestRules(NamedTuple):
    """What the request door asks of a request."""

    scope: ScopeRule
    required: Required = False
    """Clients exist that send no key yet. "warn" counts them before `True` turns them away."""
    fingerprint: Fingerprint = "raw"
    """Exact bytes: a retry sends what was sent, and nothing is taken for equal that is not."""
    max_request: int = 100 * MIB
    """Read and hashed before anything is claimed, so there must be an end to it."""
    background: Background = "before"
    """Whether what the application does after its last byte belongs to the request.

    "before": it does, so wait for it, and count its failure as the handler's.  FastAPI commits its
    default `yield` dependencies there: an answer sent earlier could be one that was rolled back.
    """
    reauthorise: Callable[[Request], bool | Awaitable[bool]] | None = None
    """Asked before a stored answer is handed out, where authorisation lives behind the middleware."""


class Wire(NamedTuple):
    """Names and limits on the wire, so that a profile is data."""

    key_header: str = "Idempotency-Key"
    longest_key: int = 255
    """Stripe's limit, and what a `VARCHAR(255)` of any client's own bookkeeping holds."""
    shortest_public_key: int = 16
    """Where nobody is identified, only a key that cannot be guessed keeps strangers apart."""
    methods: frozenset[str] = frozenset({"POST", "PUT", "PATCH", "DELETE"})
    replayed_header: str = "Idempotent-Replayed"
    original_id_header: str = "Original-Request-Id"
    request_id_header: str = "X-Request-Id"
    correlation_header: str = "X-Correlation-Id"
    body_header: str = "Idempotency-Body"
    stored_header: str = "Idempotency-Stored"
    specification: str = "/idempotency"
    """Where the service says what it promises; also the base of the problems' `type`.

    A path is served by the adapter.  An absolute URL is somebody else's page.
    """


class Names(NamedTuple):
    """The wire's header names as they are compared and sent: bytes, in lower case."""

    key: bytes
    replayed: bytes
    original_id: bytes
    request_id: bytes
    correlation: bytes
    body: bytes
    stored: bytes


class Rules(NamedTuple):
    """All that holds for one route."""

    policy: Policy
    request: RequestRules
    outcome: OutcomeRules
    wire: Wire
    names: Names


class Options(TypedDict, total=False):
    """What `Guard(…)` and a single route may say; see the fields of the values above for the reasons."""

    scope: ScopeRule
    effects: Effects
    failed: Failed
    abandoned: Abandoned
    in_flight: InFlight
    wait_for: float
    lease: float
    retention: float
    unknown_retention: float
    store_down: StoreDown
    keep_key: bool
    required: Required
    fingerprint: Fingerprint
    max_request: int
    max_response: int
    no_store: bool
    retry_on: tuple[type[Exception], ...]
    background: Background
    reauthorise: Callable[[Request], bool | Awaitable[bool]] | None


# Where doing it again does no harm, a failure or a death is just a reason to do it again.
_IMPLIED: dict[Effects, Options] = {
    "outside": {"failed": "replay", "abandoned": "hold"},
    "repeatable": {"failed": "retry", "abandoned": "retry"},
    # What failed or died was rolled back, so there is nothing to choose.
    "database": {"failed": "retry", "abandoned": "retry"},
}

_CHOICES: dict[str, tuple[object, ...]] = {
    "effects": get_args(Effects),
    "failed": get_args(Failed),
    "abandoned": get_args(Abandoned),
    "in_flight": get_args(InFlight),
    "store_down": get_args(StoreDown),
    "background": get_args(Background),
    "required": (True, False, "warn"),
    "keep_key": (True, False),
    "no_store": (True, False),
}
_POSITIVE = ("lease", "retention", "unknown_retention", "wait_for", "max_request", "max_response")


def compile_rules(options: Options, wire: Wire) -> Rules:
    """Check what was said, fill in what follows from it, and make the values."""
    if "scope" not in options:
        raise ConfigurationError(
            "Guard(...) was given no scope: say whose keys they are, for example "
            'scope=scopes.header("X-Tenant"), scope=scopes.user, or scope=scopes.public() if anybody '
            "may replay anybody's answer"
        )
    _check(options)
    _check_wire(wire)
    said: dict[str, Any] = {**layered({"effects": Policy._field_defaults["effects"]}, options)}
    unknown = said.keys() - Options.__annotations__.keys()
    if unknown:
        raise ConfigurationError(
            f"no such option: {', '.join(sorted(unknown))}; there are "
            f"{', '.join(sorted(Options.__annotations__))}"
        )
    if said["effects"] == "database":
        _check_transactional(said)
    return Rules(
        Policy(**{name: said[name] for name in Policy._fields if name in said}),
        RequestRules(**{name: said[name] for name in RequestRules._fields if name in said}),
        OutcomeRules(**{name: said[name] for name in OutcomeRules._fields if name in said}),
        wire,
        _names(wire),
    )


def _check_transactional(said: Mapping[str, object]) -> None:
    for name in ("failed", "abandoned"):
        if said[name] != "retry":
            raise ConfigurationError(
                f'{name}={said[name]!r} means nothing with effects="database": what failed or died there was '
                "rolled back, and the retry runs. Leave it out"
            )
    if said.get("background") == "after":
        raise ConfigurationError(
            'background="after" cannot go with effects="database": sessions are committed by what the '
            "application does after its last byte, and the answer must not leave before that"
        )


def layered(*layers: Options) -> Options:
    """What several layers say together; what `effects` implies is said with it, and a later layer counts."""
    said: Options = {}
    for layer in layers:
        if "effects" in layer:
            said.update(_IMPLIED.get(layer["effects"], {}))
        said.update(layer)
    return said


def _check_wire(wire: Wire) -> None:
    if isinstance(wire.methods, str) or any(method != method.upper() for method in wire.methods):
        raise ConfigurationError(
            f'Wire(methods={wire.methods!r}) must be a set of names in capitals, such as {{"POST", "PUT"}}'
        )
    if not wire.specification.startswith("/") and "://" not in wire.specification:
        raise ConfigurationError(
            f"Wire(specification={wire.specification!r}) is neither a path such as /idempotency nor a URL"
        )
    if wire.shortest_public_key < 1 or wire.longest_key < 1:
        raise ConfigurationError(
            f"Wire(longest_key={wire.longest_key}, shortest_public_key={wire.shortest_public_key}): "
            "keys have at least one character"
        )


def _names(wire: Wire) -> Names:
    sent = {name: getattr(wire, f"{name}_header") for name in Names._fields}
    for name, value in sent.items():
        if not isinstance(value, str) or not is_name(value.encode("utf-8", "surrogatepass")):
            raise ConfigurationError(
                f"Wire({name}_header={value!r}) is no header name: expected letters, digits and hyphens"
            )
    names = Names(*(value.lower().encode("ascii") for value in sent.values()))
    if len(set(names)) < len(names):
        raise ConfigurationError(f"two headers have one name: {', '.join(sent.values())}")
    return names


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value > 0


def _check(options: Options) -> None:
    for name, value in options.items():
        # By type too: 1 equals True, and would be taken for it here and for something else later.
        if name in _CHOICES and (type(value), value) not in [(type(one), one) for one in _CHOICES[name]]:
            allowed = ", ".join(repr(choice) for choice in _CHOICES[name])
            raise ConfigurationError(f"{name}={value!r} is not a choice: it is one of {allowed}")
        if name in _POSITIVE and not _is_positive(value):
            raise ConfigurationError(f"{name}={value!r} must be a number greater than zero")
    if not callable(options.get("scope")):
        raise ConfigurationError(
            f"scope={options.get('scope')!r} is no scope: expected a function of the request, such as "
            'scopes.user or scopes.header("X-Tenant")'
        )
    reauthorise = options.get("reauthorise")
    if reauthorise is not None and not callable(reauthorise):
        raise ConfigurationError(
            f"reauthorise={reauthorise!r} must be a function of the request that answers True or False"
        )
    check_fingerprint(options.get("fingerprint", "raw"))
    retry_on = options.get("retry_on", ())
    if not isinstance(retry_on, tuple) or not all(
        isinstance(error, type) and issubclass(error, Exception) for error in retry_on
    ):
        raise ConfigurationError(
            f"retry_on={retry_on!r} must be a tuple of exception classes, such as (TimeoutError,)"
        )
