"""Runs batches: the commands of all its calls in one pipeline for each server that is concerned, mostly one.

What is to be sent where, and what is to be done about the replies, is written once, as a generator that
yields what to send and receives what came of it.  It is driven in a thread, or in an event loop.
"""

import asyncio
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from secrets import token_hex
from time import monotonic, time
from typing import Any, NamedTuple, Protocol, TypeVar

from retrysafe.errors import StoreError, StoreUnavailable
from retrysafe.stores.queue import Call, Outcome
from retrysafe.stores.redis.address import Node
from retrysafe.stores.redis.errors import OF_SESSION, RedisTrouble, demoted, trouble_of
from retrysafe.stores.redis.operations import commands_of
from retrysafe.stores.redis.replies import Refusal
from retrysafe.stores.redis.scripts import BOOKS, VERSION, Command, Layout, Scripts, pack
from retrysafe.stores.redis.session import Session
from retrysafe.stores.retry import Trouble
from retrysafe.stores.sql.connecting import Connecting

T = TypeVar("T")


class Sent(NamedTuple):
    """What goes to one server at once."""

    data: bytes
    number: int
    """Of replies to it."""
    within: float | None = None
    """Seconds until it is given up; the deadline, if it is not said."""


Request = Mapping[Node, Sent]
Response = Mapping[Node, list[Any] | Trouble | StoreError]
Conversation = Generator[Request, Response, T]


class Servers(Protocol):
    """Which servers there are: see `servers.py`."""

    def node_of(self, bucket: int) -> Node: ...
    def redirected(self, refusal: Refusal) -> Node: ...
    def prepare(self) -> Conversation[None]: ...
    def lost(self, node: Node) -> None: ...
    @property
    def is_alone(self) -> bool: ...


_REDIRECTIONS = 5
"""How often a command may be sent elsewhere: once for a slot that has moved, once more for one that moves
again."""

_ASKING = pack("ASKING")

_GRACE = 0.01
"""Seconds for replies that have arrived, where no other time is left."""

_LOOKED_AT = frozenset({"read", "walk", "list_due", "list_expired", "calls", "audit"})
"""What operators only look at, with replicas or without."""


class Pipeline:
    """How batches of one store are sent."""

    def __init__(
        self,
        servers: Servers,
        layout: Layout,
        scripts: Scripts,
        wait: int,
        wait_timeout: float,
        *,
        creates: bool,
    ) -> None:
        self._servers = servers
        self._layout = layout
        self._scripts = scripts
        self._creates = creates
        self._wait = wait
        self._acknowledged = pack("WAIT", str(wait), str(max(int(wait_timeout * 1000), 1))) if wait else b""

    def run(self, calls: Sequence[Call]) -> Conversation[Sequence[Outcome]]:
        """The replies to each call, or its own trouble."""
        yield from self._servers.prepare()
        yield from self.create()
        commands: list[Command] = []
        ends: list[int] = []
        for call in calls:
            commands += commands_of(call)
            ends.append(len(commands))
        waits = self._wait > 0 and any(name not in _LOOKED_AT for name, _ in calls)
        replies = yield from self.deliver(commands, waits=waits)
        if len(ends) == len(commands):
            return [reply if isinstance(reply, Trouble | StoreError) else (reply,) for reply in replies]
        outcomes: list[Outcome] = []
        begin = 0
        for end in ends:
            part = replies[begin:end]
            trouble = next((reply for reply in part if isinstance(reply, Trouble | StoreError)), None)
            outcomes.append(part if trouble is None else trouble)
            begin = end
        return outcomes

    def create(self) -> Conversation[None]:
        """Arm a store that is new, if it may create one.  Once per process: what is missing later is lost."""
        if not self._creates:
            return
        found = yield from self.sentinels()
        # The books are armed last, so without theirs another process is about to, or was interrupted.
        if found[BOOKS] is None:
            yield from self.arm(found)
        self._creates = False

    def sentinels(self) -> Conversation[list[bytes | None]]:
        """That of each bucket, and at last that of the books."""
        yield from self._servers.prepare()
        reads = [Command(number, pack("GET", bucket.armed)) for number, bucket in enumerate(self._layout.all)]
        return (yield from self.ask(reads))

    def ask(self, commands: Sequence[Command]) -> Conversation[list[Any]]:
        """The reply to each command.  Raises the first trouble."""
        replies = yield from self.deliver(commands)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    def arm(self, found: Sequence[bytes | None]) -> Conversation[None]:
        """Set the sentinels that were not found."""
        value = f"{VERSION} {token_hex(8)} {time():.0f}"
        missing = [number for number, sentinel in enumerate(found) if sentinel is None]
        # Those of a cluster are set on several nodes at once: that of the books only when all others are.
        for some in ([number for number in missing if number != BOOKS], [n for n in missing if n == BOOKS]):
            if some:
                sets = [Command(n, pack("SET", self._layout.all[n].armed, value, "NX")) for n in some]
                yield from self.ask(sets)

    def deliver(self, commands: Sequence[Command], *, waits: bool = False) -> Conversation[list[Any]]:
        """The reply to each command; or its trouble, or an error that would come again.

        With `waits` they count only once replicas have acknowledged them.
        """
        servers = self._servers
        replies: list[Any] = [None] * len(commands)
        waiting: dict[Node, list[int]] = {}
        for place, command in enumerate(commands):
            waiting.setdefault(servers.node_of(command.bucket), []).append(place)
        asking: set[int] = set()
        unloaded: set[Node] = set()
        for _ in range(_REDIRECTIONS):
            request = {
                node: self._sent(
                    [(commands[place].packed, place in asking) for place in places], node in unloaded, waits
                )
                for node, places in waiting.items()
            }
            arrived = yield request
            again: dict[Node, list[int]] = {}
            next_asking: set[int] = set()
            for node, places in waiting.items():
                asked = [place in asking for place in places]
                found = self._unpacked(arrived[node], asked, node in unloaded, waits)
                unloaded.discard(node)
                if isinstance(found, Exception):
                    if servers.is_alone:
                        raise found
                    servers.lost(node)
                    for place in places:
                        replies[place] = _for_one(found)
                    continue
                for place, reply in zip(places, found, strict=True):
                    if not isinstance(reply, Refusal):
                        replies[place] = reply
                    elif reply.code == "NOSCRIPT":
                        unloaded.add(node)
                        again.setdefault(node, []).append(place)
                        next_asking |= {place} & asking
                    elif reply.code in ("MOVED", "ASK") and not servers.is_alone:
                        elsewhere = servers.redirected(reply)
                        again.setdefault(elsewhere, []).append(place)
                        if reply.code == "ASK":
                            next_asking.add(place)
                    elif reply.code in OF_SESSION and servers.is_alone:
                        raise demoted(reply)
                    else:
                        replies[place] = trouble_of(reply)
            waiting, asking = again, next_asking
            if not waiting:
                return replies
        for places in waiting.values():
            for place in places:
                replies[place] = RedisTrouble("its slot is being moved to and fro", "TRYAGAIN")
        return replies

    def _sent(self, commands: Sequence[tuple[bytes, bool]], loads: bool, waits: bool) -> Sent:
        """The commands for one server, each with whether it is to be asked for there all the same."""
        pieces: list[bytes] = [self._scripts.load] if loads else []
        for command, asking in commands:
            if asking:
                pieces.append(_ASKING)
            pieces.append(command)
        if waits:
            pieces.append(self._acknowledged)
        number = sum(1 + asking for _, asking in commands) + waits
        return Sent(b"".join(pieces), number + (self._scripts.number if loads else 0))

    def _unpacked(
        self, arrived: list[Any] | Trouble | StoreError, asked: Sequence[bool], loaded: bool, waited: bool
    ) -> list[Any] | Trouble | StoreError:
        """The replies to the commands alone."""
        if isinstance(arrived, Exception):
            return arrived
        if waited:
            acknowledged = arrived.pop()
            if isinstance(acknowledged, Refusal):
                return trouble_of(acknowledged)
            if acknowledged < self._wait and not all(isinstance(reply, Refusal) for reply in arrived):
                return StoreUnavailable(
                    f"Redis: {acknowledged} replicas have acknowledged it in time, {self._wait} are asked "
                    "for; whether it lasts is not known"
                )
        if loaded:
            for reply in arrived[: self._scripts.number]:
                if isinstance(reply, Refusal):
                    return trouble_of(reply)
            arrived = arrived[self._scripts.number :]
        if any(asked):
            left = iter(arrived)
            arrived = []
            for asking in asked:
                if asking:
                    next(left)
                arrived.append(next(left))
        return arrived


def _until(until: float, within: float | None) -> float:
    return until if within is None else min(until, monotonic() + within)


def _share(until: float, number: int) -> float:
    """Until when to wait for a connection: one that is not to be had leaves time for the others."""
    now = monotonic()
    return until if number == 1 or until <= now else (now + until) / 2


def _for_one(trouble: Trouble | StoreError) -> Trouble | StoreError:
    """For a call whose server is lost, while those of other servers go on."""
    told = type(trouble)(*trouble.args)
    told.__cause__ = trouble
    if isinstance(told, Trouble) and isinstance(trouble, Trouble):
        told.passing = trouble.stale  # another connection may be had at once
        told.disconnected = False
    return told


Open = Callable[[Node], Session]


class _Connections:
    """One for each server, opened when it is first asked for."""

    def __init__(self, open: Open) -> None:
        self._open = open
        self._of: dict[Node, Connecting[Session]] = {}

    def to(self, node: Node) -> Connecting[Session]:
        try:
            return self._of[node]
        except KeyError:
            connecting = self._of[node] = Connecting(lambda: self._open(node))
            return connecting

    def to_all(self, nodes: Collection[Node]) -> list[tuple[Node, Connecting[Session]]]:
        """Those that are open first, the others being opened at the same time: one server that does not
        respond must not keep what is sent from all others."""
        found = [(node, self.to(node)) for node in nodes]
        return found if len(found) == 1 else sorted(found, key=lambda each: not each[1].prepare())

    def close(self) -> None:
        connections, self._of = self._of, {}
        for connecting in connections.values():
            connecting.close()


class RedisExecutor:
    """For one thread at a time."""

    def __init__(self, pipeline: Pipeline, open: Open) -> None:
        self._pipeline = pipeline
        self._connections = _Connections(open)

    def run(self, calls: Sequence[Call], until: float, patience: float) -> Sequence[Outcome]:  # noqa: ARG002
        return self.perform(self._pipeline.run(calls), until)

    def perform(self, conversation: Conversation[T], until: float) -> T:
        try:
            request = next(conversation)
            while True:
                request = conversation.send(self._exchange(request, until))
        except StopIteration as end:
            result: T = end.value
            return result
        except Trouble as trouble:
            if trouble.disconnected:
                self._connections.close()
            raise

    def _exchange(self, request: Request, until: float) -> Response:
        response: dict[Node, list[Any] | Trouble | StoreError] = {}
        sent: list[tuple[Node, Session]] = []
        for node, connecting in self._connections.to_all(request):
            data, _, within = request[node]
            try:
                until = _until(until, within)
                session = connecting.connected(_share(until, len(request)))
                has_worked = session.has_worked
                with connecting.in_use(session):
                    session.send(data, until)
                session.has_worked = has_worked  # that is known only once it has replied
            except (Trouble, StoreError) as error:
                response[node] = error
            else:
                sent.append((node, session))
        for node, session in sent:
            try:
                with self._connections.to(node).in_use(session):
                    # What has arrived is read, although another server has used up all of the time.
                    response[node] = session.receive(request[node].number, max(until, monotonic() + _GRACE))
            except (Trouble, StoreError) as error:
                response[node] = error
        return response

    def close(self) -> None:
        self._connections.close()


class AsyncRedisExecutor:
    """For the coroutines of one event loop."""

    def __init__(self, pipeline: Pipeline, open: Open) -> None:
        self._pipeline = pipeline
        self._connections = _Connections(open)

    async def run(
        self,
        calls: Sequence[Call],
        until: float,
        patience: float,  # noqa: ARG002
    ) -> Sequence[Outcome]:
        conversation = self._pipeline.run(calls)
        try:
            request = next(conversation)
            while True:
                request = conversation.send(await self._exchange(request, until))
        except StopIteration as end:
            result: Sequence[Outcome] = end.value
            return result
        except Trouble as trouble:
            if trouble.disconnected:
                self._connections.close()
            raise

    async def _exchange(self, request: Request, until: float) -> Response:
        response: dict[Node, list[Any] | Trouble | StoreError] = {}
        sent: list[tuple[Node, Session, asyncio.Future[list[Any]]]] = []
        loop = asyncio.get_running_loop()
        for node, connecting in self._connections.to_all(request):
            data, number, within = request[node]
            try:
                until = _until(until, within)
                session = await connecting.connected_async(_share(until, len(request)), loop)
                sent.append((node, session, session.begin(data, number, until)))
            except (Trouble, StoreError) as error:
                response[node] = error
        for node, session, replies in sent:
            try:
                with self._connections.to(node).in_use(session):
                    response[node] = await replies
            except (Trouble, StoreError) as error:
                response[node] = error
        return response

    def close(self) -> None:
        self._connections.close()
