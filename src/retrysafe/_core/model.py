"""The values that every other module speaks in.

Frozen, slotted, closed: nothing here decides and nothing here touches the world.  Times are seconds
since the epoch *by the store's clock*; durations are seconds.  Headers are a tuple of pairs and never a
mapping, because `Link` and `Set-Cookie` repeat.

They are named tuples and not dataclasses: a request makes a dozen of them, and a named tuple costs a
fifth of a frozen dataclass to make and nothing to import.  Those that every request makes are made by `make`.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, TypeVar, cast

T = TypeVar("T")


class _Make(Protocol):
    def __call__(self, kind: type[T], fields: tuple[object, ...], /) -> T: ...


make = cast("_Make", tuple.__new__)  # pyright: ignore[reportUnknownMemberType]  # of any fields
"""A named tuple of all of its fields, in their order: half the cost of calling the class, which would call a
function of Python's for each.  Types are not checked and defaults not filled in, so it is for what every
request makes, and a test counts the fields wherever it is used."""

Door = Literal["request", "callback", "operation"]
State = Literal["in_progress", "completed", "failed"]
Unsettled = Literal["in_progress", "failed"]
"""States that a later attempt may follow."""
Mode = Literal["lease", "tx"]
RetentionFrom = Literal["creation", "update"]

Header = tuple[bytes, bytes]
Headers = tuple[Header, ...]
Parts = tuple[tuple[str, str], ...]


class Scope(NamedTuple):
    """Whose key it is: named parts such as `(("tenant", "7"), ("user", "42"))`."""

    parts: Parts
    public: bool = False


ARGUMENTS = "retrysafe.arguments"
"""Where an adapter leaves what an endpoint is called with, in the framework's own request."""


class Request:
    """The head of an HTTP request, whichever framework it came through.  To be read only."""

    __slots__ = ("_principal", "_scheme", "fields", "headers", "method", "native", "path", "query", "root")

    def __init__(
        self,
        method: str,
        path: str,
        query: bytes,
        headers: Sequence[Header],
        scheme: str = "http",
        principal: object = None,
        native: object = None,
        root: str = "",
        fields: dict[bytes, bytes] | None = None,
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        """Names in lower case, in the order and number in which they arrived."""
        self.fields = dict(headers) if fields is None else fields
        """The same by name; of a header that was sent several times the last value."""
        self._scheme = scheme
        self._principal = principal
        self.native = native
        """The framework's own request: an ASGI scope, a WSGI environ, a Django request."""
        self.root = root
        """Where the application is mounted: what the paths of its own routes do not begin with."""

    @property
    def scheme(self) -> str:
        return self._scheme

    @property
    def principal(self) -> object:
        """Who is asking, if the framework says so."""
        return self._principal

    @property
    def arguments(self) -> Mapping[str, object] | None:
        """What the endpoint is called with, where it claims the key itself."""
        native: object = self.native
        return (
            cast("Mapping[str, Mapping[str, object]]", native).get(ARGUMENTS)
            if isinstance(native, Mapping)
            else None
        )

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.path!r}>"  # headers carry credentials

    def header(self, name: bytes) -> bytes | None:
        """The value of a header, whose name is given in lower case; the last one, should there be several."""
        return self.fields.get(name)

    def every(self, name: bytes) -> list[bytes]:
        """All values of a header, in their order."""
        if len(self.fields) == len(self.headers):  # nothing is repeated, so there is one or none
            return [self.fields[name]] if name in self.fields else []
        return [value for found, value in self.headers if found == name]


VALUE, RAISED, FAILED = 200, 422, 500
"""How the outcome of an operation is stored, a value, an exception that it declares or any other: as the
status that a request with it would have."""


class Response(NamedTuple):
    """Status, headers and the exact bytes of a body."""

    status: int
    headers: Headers = ()
    """Names in lower case, in the order and number in which they are sent."""
    body: bytes = b""

    def __repr__(self) -> str:
        return f"<Response {self.status}, {len(self.body)} bytes>"


class Inbox(NamedTuple):
    """What a claim says of a delivery whose payload is stored with its record, for a worker to handle."""

    payload: bytes | None
    """What was delivered; `None` where it is stored already, and stays."""
    due_in: float | None
    """After how many seconds a worker may handle it, unless it is being handled then, or done.  `None`: no
    worker may."""
    never_released: bool = False
    """The record stays, because the sender may have been told that the payload is stored."""

    @property
    def is_only_stored(self) -> bool:
        """Whether the claim brings a payload, and leaves it to a worker.  It takes over nothing that a worker
        may handle already, now or later."""
        return self.never_released and self.payload is not None


class Claim(NamedTuple):
    """One attempt's bid for a key, and afterwards the proof of holding it.

    The token is drawn anew for every bid.  Everything an owner writes is conditional on it, and a bid that
    is repeated because its acknowledgement was lost carries the same one, so it recognises itself.
    """

    id: bytes
    """SHA-256 over door, scope and key: what the store looks records up by."""
    token: bytes
    fingerprint: bytes
    """What was asked, so that the same key with another request is noticed."""
    lease: float
    retention: float
    hold: float
    """For how long, from the bid on, an abandoned attempt blocks its key. Zero: as long as the retention."""
    door: Door
    scope: Parts
    key: str | None
    """As the client sent it; `None` where only its digest may be stored."""
    action: str
    """The method of a request, the action of an operation."""
    target: str
    """The path of a request, the target of an operation."""
    request_id: str
    correlation_id: str | None = None
    mode: Mode = "lease"
    """How its effects are kept from happening twice: by the lease, or by a transaction that carries them."""
    announced: bool = False
    """Whether other requests may be waiting for its end."""
    details: Parts = ()
    """What an operator may want to know besides, by name: a callback's run, status and result."""
    retention_from: RetentionFrom = "creation"
    """What the retention is counted from."""
    inbox: Inbox | None = None
    """Of a delivery whose payload is stored."""

    def __repr__(self) -> str:
        return f"<Claim of {self.id.hex()[:8]} by {self.token.hex()[:8]}>"  # the key is a secret


class Record(NamedTuple):
    """What the store knows about a key."""

    id: bytes
    token: bytes
    fingerprint: bytes
    state: State
    mode: Mode
    attempt: int
    lease_until: float | None
    """`None` is a lease that was lost or damaged in the store. It counts as alive until `expires_at`."""
    checkpointed: bool
    """Bytes of this attempt's response have left: it is never taken over."""
    door: Door
    scope: Parts
    key: str | None
    action: str
    target: str
    request_id: str
    correlation_id: str | None
    created_at: float
    updated_at: float
    completed_at: float | None
    expires_at: float
    held_until: float
    response: Response | None
    """The stored response; for a checkpointed attempt its status and headers so far."""
    omitted: bool
    """The response was too large or too secret to store: status and headers stand for it."""
    details: Parts = ()
    """Those of the claim, then those of the outcome."""
    deliveries: int = 1
    """How often it was asked for: requests with this key, deliveries of this event.  Processes count for some
    seconds before they store it, and under heavy load not every replay, see `LeaseKeeper.count_delivery`."""
    seen_at: float | None = None
    """When it was last asked for; `None` if only once, at its creation."""
    delivery_times: tuple[float, ...] = ()
    """When it was asked for again: the last 20 times."""
    retention_from: RetentionFrom = "creation"

    def __repr__(self) -> str:
        return f"<Record {self.id.hex()[:8]}: attempt {self.attempt} {self.state} by {self.token.hex()[:8]}>"


class Reserved(NamedTuple):
    """The key is ours."""

    attempt: int


class Found(NamedTuple):
    """The key is taken; `now` is the store's clock at the moment of looking."""

    record: Record
    now: float


Reservation = Reserved | Found


class Final(NamedTuple):
    """How an attempt ended, as it is to be stored."""

    state: Literal["completed", "failed"]
    response: Response
    omitted: bool = False
    details: Parts = ()
    """What is known now and was not when it began."""
    due_in: float | None = None
    """After how many seconds a worker may handle the payload that is stored with it (again); `None`: not at
    all."""


DELIVERY_TIMES = 20
"""How many of them a record has; the columns of SQL stores are cut at as many."""


class Deliveries(NamedTuple):
    """How often a record was asked for again, since this was last stored."""

    number: int
    ago: Sequence[float]
    """How many seconds ago, the oldest first; of many the last 20."""


class Counted(NamedTuple):
    """What calls are counted by."""

    verdict: str
    """How they ended; "keyless": served without a key, on a route that takes keys."""
    door: str
    route: str
    """The template of a path, or the guard's own route; of an operation its action; else empty."""
    source: str
    """Where callbacks come from: the name of their receipts; else empty."""


def merge_details(claimed: Parts, found: Parts) -> Parts:
    """The details of a claim and then those of its outcome, which replace others of the same name."""
    if not found:
        return claimed
    names = {name for name, _ in found}
    return (*(detail for detail in claimed if detail[0] not in names), *found)


class Purged(NamedTuple):
    """What one batch of a purge removed."""

    records: int
    unresolved: tuple[Record, ...] = ()
    """Abandoned records whose outcome was never settled, and which had expired."""
