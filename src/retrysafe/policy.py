"""What may be chosen: the engine's policy, the rules of the request door, and the wire.

Four small values, because different people choose them: `Policy` says where the effects are, `OutcomeRules`
what is stored of an outcome, `RequestRules` what an endpoint asks of a request, `Wire` what an API publishes.
Every default argues for itself; all of them are for money.  `compile_rules` checks what the user said and
makes the values; nothing downstream has to check again.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import isfinite
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypedDict, cast, get_args

from retrysafe import scopes
from retrysafe._core.fingerprint import Fingerprint
from retrysafe._core.fingerprint import check as check_fingerprint
from retrysafe._core.headers import is_name
from retrysafe._core.keys import Secret
from retrysafe._core.model import Headers, Request, RetentionFrom, State
from retrysafe._core.problems import CATALOGUE, WAITS, Code, Envelope, Kind, Presentation
from retrysafe._core.times import Duration, seconds
from retrysafe.errors import ConfigurationError
from retrysafe.scopes import ScopeRule

Effects = Literal["outside", "repeatable", "database"]
Failed = Literal["replay", "retry", "conflict"]
Abandoned = Literal["hold", "retry"]
InFlight = Literal["reject", "wait"]
StoreDown = Literal["refuse", "run"]
Tombstone = Literal["status", "empty-200"]
Background = Literal["before", "after"]
Refusals = Literal["store", "release"]
InProgress = Literal["refuse", "acknowledge"]
Required = bool | Literal["warn"]
Paths = Sequence[str] | Callable[[str], bool]

HOUR = 3600.0
DAY = 24 * HOUR
MIB = 1024 * 1024


class Policy(NamedTuple):
    """How the engine treats a key, through whichever door it came."""

    effects: Effects = "outside"
    """Where the effects are. "outside": they cannot be taken back, and whether they happened is not known.
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
    retention_from: RetentionFrom = "creation"
    """A retry does not lengthen it: what a client was promised does not depend on how often it asks."""
    unknown_retention: float = 30 * DAY
    """An unknown outcome waits for a person: a month survives holidays and month-end."""
    store_down: StoreDown = "refuse"
    """A claim that was not confirmed protects no request."""
    keep_key: bool = True
    """Operators search by key; without it only a digest is stored, made with the guard's secret."""


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
    drop_headers: frozenset[bytes] = frozenset()
    """Response headers that belong to one client and are neither stored nor replayed, besides the known."""


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
    default `yield` dependencies there: a response sent earlier could be one that was rolled back.
    """
    reauthorise: Callable[[Request], bool | Awaitable[bool]] | None = None
    """Called before a stored response is replayed, where authorisation lives behind the middleware."""


class Retries(NamedTuple):
    """How often a worker handles a stored payload, and after which pauses."""

    attempts: int = 20
    """With the pauses below, half a day: most outages are over, and what still fails wants a person."""
    first: float = 5.0
    """A deadlock or a restart is over by then.  Each pause is twice the one before."""
    longest: float = 3600.0
    """So that what has been repaired is handled within the hour."""

    def pause(self, tried: int) -> float | None:
        """Before the next try, after so many; `None`: there is none."""
        if tried >= self.attempts:
            return None
        return min(self.first * 2.0 ** min(tried, 60), self.longest)


class CallbackRules(NamedTuple):
    """What holds for deliveries besides, which come from a sender that repeats them by itself."""

    in_progress: InProgress = "refuse"
    """What a delivery is told whose event is being handled: an acknowledgement would be a promise, and the
    worker that handles it may die yet."""
    inbox: bool = False
    """Whether a delivery is acknowledged as soon as its payload is stored, and handled by a worker."""
    retries: Retries = Retries()


class Wire(NamedTuple):
    """Names, limits, numbers and texts on the wire, so that a profile is data."""

    key_header: str = "Idempotency-Key"
    longest_key: int = 255
    """Stripe's limit, and what a `VARCHAR(255)` of any client's own bookkeeping holds."""
    strict_keys: bool = False
    """Refuse bare keys.  Off: most clients send them, and a key that is understood is better than a 400."""
    shortest_public_key: int = 16
    """Where no client is identified, only a key that cannot be guessed keeps strangers apart."""
    methods: frozenset[str] = frozenset({"POST", "PUT", "PATCH", "DELETE"})
    replayed_header: str = "Idempotent-Replayed"
    original_id_header: str = "Original-Request-Id"
    """The id of the first request, on replays."""
    keyed_id_header: str | None = None
    """The same id on every response to a request with a key, a first one's own included: Stripe's
    `Original-Request`.  May be the name of `original_id_header`."""
    request_id_header: str = "X-Request-Id"
    correlation_header: str = "X-Correlation-Id"
    body_header: str = "Idempotency-Body"
    tombstone: Tombstone = "status"
    """What a retry gets of a response whose body was not stored: its own status.  "empty-200" is for clients
    of an API that has always replayed a success as 200 there, and loses what a 201 or 202 says."""
    stored_header: str = "Idempotency-Stored"
    should_retry_headers: tuple[str, ...] = ("X-Should-Retry",)
    """Whether to retry, in one word: this name is read by the SDKs that several vendors generate."""
    echo_key: bool = False
    """Send the key back with first responses and replays, in the client's own form.  Off: it ends up in the
    logs of every proxy, and clients know what they sent."""
    statuses: Mapping[Code, int] = MappingProxyType({})
    """By the code of a problem, where an API has published other numbers."""
    details: Mapping[Code, str] = MappingProxyType({})
    """The same for the `detail` text, which is then the same for every occurrence."""
    render_problem: Envelope | None = None
    """Makes the body of a problem in the API's own form: a function of `ProblemDetails` that returns a
    mapping, which is sent as `application/json`."""
    completed_word: str = "completed"
    """What clients and the published specification call a completed record."""
    specification: str = "/idempotency"
    """Where the service says what it promises; also the base of the problems' `type`.

    A path is served by the adapter.  An absolute URL is a page that the application serves itself.
    """

    def status(self, code: Code) -> int:
        """The status that a problem is sent with."""
        return self.statuses.get(code, CATALOGUE[code].status)

    def word(self, state: State) -> str:
        """The state of a record, as clients of this wire know it."""
        return self.completed_word if state == "completed" else state


class Names(NamedTuple):
    """The wire's header names as they are compared and sent: bytes, in lower case."""

    key: bytes
    replayed: bytes
    original_id: bytes
    request_id: bytes
    correlation: bytes
    body: bytes
    stored: bytes


class Rendering(NamedTuple):
    """What follows from the rules for the rendering of responses, worked out once."""

    problems: Presentation
    renewed: frozenset[bytes]
    """Stored headers that a replay does not carry as they are stored: sent anew, or dropped by this route."""
    hints: frozenset[bytes]
    """Retry hints, which a failure's own response may carry and which are replaced by ours."""
    no_retry: Headers
    may_retry: Headers
    should_retry: frozenset[bytes]
    echo_key: bool
    keyed_id: bytes | None
    adds: bool
    """Whether first responses get a header that only this wire has."""


class Rules(NamedTuple):
    """All that holds for one route."""

    policy: Policy
    request: RequestRules
    outcome: OutcomeRules
    wire: Wire
    names: Names
    rendering: Rendering
    identity_secret: Secret | None = None
    """What the identities of keys are made with, where a key itself is not stored."""


class OperationOptions(TypedDict, total=False):
    """What may be said of every call with a key, whichever door it comes through, and so of an operation."""

    effects: Effects
    failed: Failed
    abandoned: Abandoned
    in_flight: InFlight
    wait_for: Duration
    lease: Duration
    retention: Duration
    retention_from: RetentionFrom
    unknown_retention: Duration
    store_down: StoreDown
    keep_key: bool
    max_response: int
    no_store: bool
    retry_on: tuple[type[Exception], ...]


class Options(OperationOptions, total=False):
    """What `Guard(…)` and a single route may say; see the fields of the values above for the reasons."""

    scope: ScopeRule
    required: Required
    fingerprint: Fingerprint
    max_request: int
    background: Background
    reauthorise: Callable[[Request], bool | Awaitable[bool]] | None
    drop_headers: Sequence[str]


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
    "retention_from": get_args(RetentionFrom),
    "background": get_args(Background),
    "required": (True, False, "warn"),
    "keep_key": (True, False),
    "no_store": (True, False),
}
_DURATIONS = ("lease", "retention", "unknown_retention", "wait_for")
_SIZES = ("max_request", "max_response")


def _ignore(_: Exception) -> None:
    """Where no guard is there to log it."""


def compile_rules(
    options: Options,
    wire: Wire,
    secret: bytes | None = None,
    report: Callable[[Exception], object] = _ignore,
) -> Rules:
    """Check what was said, fill in what follows from it, and make the values.

    `secret` is the guard's, `None` where it has none; `report` receives what `Wire(render_problem=…)` raises.
    """
    if "scope" not in options:
        raise ConfigurationError(
            "Guard(...) was given no scope: say whose keys they are, for example "
            'scope=scopes.header("X-Tenant"), scope=scopes.user, or scope=scopes.public() if each client '
            "may replay the responses of all others"
        )
    check_options(options)
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
    said["scope"] = scopes.bind(said["scope"], secret)
    said["drop_headers"] = _dropped(said.get("drop_headers", ()))
    said.update({name: _duration(name, said[name]) for name in _DURATIONS if name in said})
    policy = Policy(**{name: said[name] for name in Policy._fields if name in said})
    request = RequestRules(**{name: said[name] for name in RequestRules._fields if name in said})
    outcome = OutcomeRules(**{name: said[name] for name in OutcomeRules._fields if name in said})
    names = _names(wire)
    return Rules(
        policy,
        request,
        outcome,
        wire,
        names,
        _rendering(policy, request, outcome, wire, names, report),
        Secret(secret) if secret is not None and not policy.keep_key else None,
    )


def _rendering(
    policy: Policy,
    request: RequestRules,
    outcome: OutcomeRules,
    wire: Wire,
    names: Names,
    report: Callable[[Exception], object],
) -> Rendering:
    kinds: dict[Code, Kind] = {
        code: kind._replace(status=wire.status(code)) for code, kind in CATALOGUE.items()
    }
    if policy.failed == "retry":
        # It was rolled back, or running it again does no harm.
        kinds["handler-failed"] = kinds["handler-failed"]._replace(retry=True)
    details: dict[Code, str] = {"principal-required": scopes.missing(request.scope), **wire.details}
    should_retry = tuple(_encoded("should_retry_headers", name) for name in wire.should_retry_headers)
    keyed_id = _encoded("keyed_id_header", wire.keyed_id_header) if wire.keyed_id_header is not None else None
    distinct = [*names, *should_retry, *([keyed_id] if keyed_id not in (None, names.original_id) else [])]
    if len(set(distinct)) < len(distinct):
        raise ConfigurationError(
            f"two headers of the wire have one name: {', '.join(name.decode() for name in distinct if name)}"
        )
    return Rendering(
        Presentation(kinds, details, should_retry, wire.render_problem, report),
        frozenset({*names, *outcome.drop_headers, *([keyed_id] if keyed_id else [])}),
        frozenset({*WAITS, *should_retry}),
        tuple((name, b"false") for name in should_retry),
        tuple((name, b"true") for name in should_retry),
        frozenset(should_retry),
        wire.echo_key,
        keyed_id,
        wire.echo_key or keyed_id is not None,
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
            "application does after its last byte, and the response must not be sent before that"
        )


def layered(*layers: Options) -> Options:
    """What several layers say together; what `effects` implies is said with it, and a later layer counts."""
    said: Options = {}
    for layer in layers:
        if "effects" in layer:
            said.update(_IMPLIED.get(layer["effects"], {}))
        said.update(layer)
    return said


_WORD = re.compile("[a-z][a-z_-]*")


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
    for name in ("echo_key", "strict_keys"):
        if not isinstance(said := getattr(wire, name), bool):
            raise ConfigurationError(f"Wire({name}={said!r}) must be True or False")
    if wire.tombstone not in get_args(Tombstone):
        raise ConfigurationError(
            f"Wire(tombstone={wire.tombstone!r}) is not a choice: it is one of "
            f"{', '.join(repr(choice) for choice in get_args(Tombstone))}"
        )
    if isinstance(wire.should_retry_headers, str) or not isinstance(wire.should_retry_headers, Sequence):
        raise ConfigurationError(
            f"Wire(should_retry_headers={wire.should_retry_headers!r}) must be a tuple of header names, "
            'such as ("X-Should-Retry", "Stripe-Should-Retry")'
        )
    if not isinstance(wire.completed_word, str) or not (
        _WORD.fullmatch(wire.completed_word) and wire.completed_word not in ("in_progress", "failed")
    ):
        raise ConfigurationError(
            f"Wire(completed_word={wire.completed_word!r}) must be a word in lower case that is neither "
            'in_progress nor failed, such as "succeeded"'
        )
    _check_problems(wire)


def _check_problems(wire: Wire) -> None:
    """What the wire says about problems: of those that there are, with values that can be sent."""
    for name in ("statuses", "details"):
        said: object = getattr(wire, name)
        if not isinstance(said, Mapping):
            raise ConfigurationError(f"Wire({name}={said!r}) must be a mapping from codes of problems")
        if unknown := [repr(code) for code in cast("Mapping[object, object]", said) if code not in CATALOGUE]:
            raise ConfigurationError(
                f"Wire({name}=...) has {', '.join(unknown)}, which is not a code of a problem: there are "
                f"{', '.join(CATALOGUE)}"
            )
    for code, status in wire.statuses.items():
        if isinstance(status, bool) or not isinstance(status, int) or not 400 <= status <= 599:
            raise ConfigurationError(
                f"Wire(statuses={{{code!r}: {status!r}}}) is not a valid status: expected 400 to 599"
            )
    for code, detail in wire.details.items():
        if not isinstance(detail, str) or not detail.strip():
            raise ConfigurationError(
                f"Wire(details={{{code!r}: {detail!r}}}) is not a valid text: expected one or more words"
            )
    if wire.render_problem is None:
        return
    from inspect import iscoroutinefunction  # half as long to import as all of this library

    if not callable(wire.render_problem) or iscoroutinefunction(wire.render_problem):
        raise ConfigurationError(
            f"Wire(render_problem={wire.render_problem!r}) must be a plain function of a problem's "
            "details that returns a mapping: it is called, and not awaited"
        )


def _names(wire: Wire) -> Names:
    return Names(*(_encoded(f"{name}_header", getattr(wire, f"{name}_header")) for name in Names._fields))


def _encoded(field: str, value: object) -> bytes:
    if not isinstance(value, str) or not is_name(value.encode("utf-8", "surrogatepass")):
        raise ConfigurationError(
            f"Wire({field}={value!r}) is not a valid header name: expected letters, digits and hyphens"
        )
    return value.lower().encode("ascii")


def _dropped(names: object) -> frozenset[bytes]:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise ConfigurationError(
            f'drop_headers={names!r} must be a tuple of header names, such as ("X-Session",)'
        )
    found: set[bytes] = set()
    for name in cast("Sequence[object]", names):
        if not isinstance(name, str) or not is_name(name.encode("utf-8", "surrogatepass")):
            raise ConfigurationError(
                f"drop_headers has {name!r}, which is not a valid header name: expected letters, digits and "
                "hyphens"
            )
        found.add(name.lower().encode("ascii"))
    return frozenset(found)


def _duration(name: str, value: object) -> float:
    try:
        found = seconds(value)
    except ValueError as refusal:
        raise ConfigurationError(f"{name}={refusal}") from None
    if found <= 0:
        raise ConfigurationError(f"{name}={value!r} must be a number of seconds greater than zero")
    return found


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value > 0


def check_options(options: Options) -> None:
    """Refuse values that no guard could take."""
    for name, value in options.items():
        # By type too: 1 equals True, and would be taken for it here and for something else later.
        if name in _CHOICES and (type(value), value) not in [(type(one), one) for one in _CHOICES[name]]:
            allowed = ", ".join(repr(choice) for choice in _CHOICES[name])
            raise ConfigurationError(f"{name}={value!r} is not a choice: it is one of {allowed}")
        if name in _SIZES and not _is_positive(value):
            raise ConfigurationError(f"{name}={value!r} must be a number greater than zero")
    reauthorise = options.get("reauthorise")
    if reauthorise is not None and not callable(reauthorise):
        raise ConfigurationError(
            f"reauthorise={reauthorise!r} must be a function of the request that returns True or False"
        )
    check_fingerprint(options.get("fingerprint", "raw"))
    retry_on = options.get("retry_on", ())
    if not isinstance(retry_on, tuple) or not all(
        isinstance(error, type) and issubclass(error, Exception) for error in retry_on
    ):
        raise ConfigurationError(
            f"retry_on={retry_on!r} must be a tuple of exception classes, such as (TimeoutError,)"
        )
