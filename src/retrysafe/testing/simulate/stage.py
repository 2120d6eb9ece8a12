"""One setting, compiled: its rules, and the claims of the requests that may arrive, for many worlds.

Claims are made by the real `protocol.respond` and `protocol.operate`, with a real head, scope and
fingerprint.  The identities, and what they ask for, are such as a careless identity or fingerprint mistakes
for one another.
"""

from typing import NamedTuple

from retrysafe._core import fingerprint, protocol
from retrysafe._core.model import Claim, Parts, Request, Response, Scope
from retrysafe._core.problems import CATALOGUE, Problem
from retrysafe._core.steps import Look, Operation, Reserve, Run, Step
from retrysafe.operations import arguments
from retrysafe.policy import Options, Rules, Wire, compile_rules
from retrysafe.testing.simulate.setting import HOLD, LEASE, RETENTION, Setting


class Identity(NamedTuple):
    """A principal and a key."""

    scope: Parts
    key: str

    def __str__(self) -> str:
        return f"{'/'.join(value for _, value in self.scope)} with key {self.key}"


IDENTITIES = (
    Identity((("tenant", "a"), ("user", "bc")), "1k"),
    Identity((("tenant", "ab"), ("user", "c")), "1k"),
    Identity((("tenant", "a"), ("user", "bc1")), "k"),
    Identity((("tenant", "a"), ("user", "bc")), "1K"),
    Identity((("tenant", "b"), ("user", "bc")), "1k"),
    Identity((("tenant", "a"), ("user", "d")), "1k"),
)


class Asked(NamedTuple):
    """What is asked for."""

    method: str
    path: str
    query: bytes
    body: bytes
    media_type: bytes = b"application/json"

    def __str__(self) -> str:
        query = f"?{self.query.decode()}" if self.query else ""
        return f"{self.method} {self.path}{query} {self.body.decode()} ({self.media_type.decode()})"


ASKED = (
    Asked("POST", "/orders", b"", b'{"a":1}'),
    Asked("POST", "/orders", b"", b'{"A":1}'),
    Asked("PUT", "/orders", b"", b'{"a":1}'),
    Asked("POST", "/order", b"s", b'{"a":1}'),
    Asked("POST", "/orders", b"", b'{"a":1}', b"text/plain"),
    Asked("POST", "/orders", b"", b'{"a":2}'),
    Asked("POST", "/refunds", b"", b'{"a":1}'),
    Asked("POST", "/orders", b"s", b'{"a":1}'),
)


class Called(NamedTuple):
    """What an operation is called with."""

    action: str
    order: str
    amount: int = 1
    note: str = ""

    def __str__(self) -> str:
        return f"{self.action}({self.order}, {self.amount}, {self.note!r})"


CALLED = (
    Called("charge", "o-1"),
    Called("charge", "o-2"),
    Called("refund", "o-1"),
    Called("charge", "o-1", 2),
    Called("chargeo", "-1"),
    Called("charge", "o-1", note="1"),
    Called("charge", "o-", 11),
    Called("charge", "o-1", note="2"),
)
"""As many as `ASKED`."""


class _Order:
    """It cannot be compared: the target is the part that identifies it."""

    def __init__(self, id: str) -> None:
        self.id = id


def _charge(order: _Order, amount: int, note: str = "") -> None:
    """The signature of the operations."""


PART_OF = {0: 4, 1: 4, 2: 4, 3: 5}
"""Where calls have a part: whose key that has, by their own identity.  Those that are parts have none."""


class Stage:
    """The rules and claims of one setting: made once, used by many worlds."""

    def __init__(self, setting: Setting) -> None:
        setting.check()
        self.setting = setting
        options: Options = {
            "scope": lambda _: "unused",
            "failed": setting.failed,
            "abandoned": setting.abandoned,
            "in_flight": setting.in_flight,
            "wait_for": 0.05,
            "store_down": setting.store_down,
            "lease": LEASE,
            "retention": RETENTION,
            "unknown_retention": HOLD,
        }
        if setting.mode == "tx":
            options["effects"] = "database"
        if setting.reauthorise:
            options["reauthorise"] = lambda _: True
        self.rules = compile_rules(options, Wire())
        self._claims: dict[tuple[int, int, int], Claim] = {}

    def claim(self, identity: int, asked: int, number: int) -> Claim:
        """The bid of the request with this number."""
        trace = number & 1  # retries differ in headers that are no part of what is asked for
        made = self._claims.get((identity, asked, trace))
        if made is None:
            if self.is_operation(identity):
                made = _call(self.identity(identity), CALLED[asked], self.rules)
            else:
                made = _arrive(self.identity(identity), ASKED[asked], trace, self.rules)
            self._claims[identity, asked, trace] = made
        return made._replace(token=draw(number), request_id=f"request {number}")

    def is_operation(self, identity: int) -> bool:
        """Whether it comes through the operation door."""
        door = self.setting.door
        if door == "nested":
            return identity in (0, 1, *PART_OF.values())
        return door == "operation" or (door == "both" and identity % 2 == 1)

    def identity(self, identity: int) -> Identity:
        """Where doors are mixed, two of them have the same principal and key."""
        return IDENTITIES[identity - identity % 2 if self.setting.door == "both" else identity]

    def part_of(self, identity: int) -> int | None:
        """The identity of the operation that is a part of its calls."""
        return PART_OF.get(identity) if self.setting.door == "nested" else None

    def describe(self, identity: int, asked: int) -> str:
        """What is asked for, for people."""
        return str(CALLED[asked] if self.is_operation(identity) else ASKED[asked])


def draw(number: int) -> bytes:
    """The token of a request's bid."""
    return b"token %d" % number


def describe(problem: Problem) -> Response:
    return Response(CATALOGUE[problem.code].status, (), problem.code.encode())


def _arrive(identity: Identity, asked: Asked, trace: int, rules: Rules) -> Claim:
    """Perform the real arrival of a request."""
    key = b'"' + identity.key.encode() + b'"'
    fields = (
        (b"idempotency-key", key),
        (b"content-type", asked.media_type),
        (b"traceparent", b"00-%032x-%016x-00" % (trace + 1, trace + 1)),
    )
    request = Request(asked.method, asked.path, asked.query, fields)
    flow = protocol.respond(request, rules, describe, b"", "id", None, lambda: False, b"")
    body = fingerprint.InMemory(asked.body)
    found = (Scope(identity.scope), fingerprint.fingerprint(rules.request.fingerprint, request, body))
    step = next(flow)
    for one in found:
        step = flow.send(one)
    flow.close()
    return _bid(step)


def _call(identity: Identity, called: Called, rules: Rules) -> Claim:
    """Perform the real arrival of an operation."""
    parameters = arguments.Parameters(_charge, "order.id", ())
    given = (_Order(called.order), called.amount, *([called.note] if called.note else []))
    bound = parameters.bind(given, {})
    target = parameters.target(given, {}, bound)
    operation = Operation(
        called.action, target, parameters.fingerprint(called.action, target, bound), "id", None
    )
    flow = protocol.operate(operation, identity.key, rules, describe, b"", lambda: False, b"")
    next(flow)
    step = flow.send(Scope(identity.scope))
    flow.close()
    return _bid(step)


def _bid(step: Step) -> Claim:
    # A planted bug may look first, or run the handler first.
    match step:
        case Reserve(claim) | Look(claim):
            return claim
        case Run(_, call):
            return call.claim
        case _:
            raise AssertionError(f"no bid but {step}")
