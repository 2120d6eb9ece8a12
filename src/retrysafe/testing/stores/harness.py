"""What the tests of the suite share: a clock, some values, and one way to call both halves of a store."""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import Protocol

import pytest

from retrysafe._core.model import (
    Claim,
    Counted,
    Door,
    Final,
    Found,
    Record,
    Reservation,
    Response,
    Unsettled,
)
from retrysafe.stores.admin import Admin
from retrysafe.stores.contract import AsyncStore, Store

Elapse = Callable[[float], None]
LoseLease = Callable[[bytes], None]


class ManualClock:
    """Seconds since the epoch that pass only when a test calls `elapse`."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def elapse(self, seconds: float) -> None:
        self.now += seconds


class Identities:
    """The ids that tests use: the same every time in a store that was made for a test, and ids that no other
    record has where the store is one in use."""

    def __init__(self) -> None:
        self._mark = b""
        self.used: set[bytes] = set()

    def begin(self, mark: bytes) -> None:
        self._mark = mark
        self.used.clear()

    def of(self, key: str) -> bytes:
        return self._note(sha256(self._mark + key.encode()).digest())

    def ending_as(self, id: bytes) -> bytes:
        """For ids whose very bytes are tested: of its own by the first eight, of the test by the rest."""
        return self._note(self._mark[:8] + id[8:]) if self._mark else id

    def _note(self, id: bytes) -> bytes:
        if self._mark:
            self.used.add(id)
        return id


identities = Identities()


def a_claim(key: str = "key") -> Claim:
    """A bid for this key, with a token of its own: lease 30 s, retention an hour, no hold."""
    return Claim(
        id=identities.of(key),
        token=os.urandom(16),
        fingerprint=sha256(b"what was asked").digest(),
        lease=30.0,
        retention=3600.0,
        hold=0.0,
        door="request",
        scope=(("tenant", "7"), ("user", "42")),
        key=key,
        action="POST",
        target="/orders",
        request_id="first-request",
        correlation_id="trace-1",
    )


def an_outcome(body: bytes = b'{"order": 1}') -> Final:
    headers = ((b"content-type", b"application/json"), (b"location", b"/orders/1"))
    return Final("completed", Response(201, headers, body))


def ended(
    verdicts: Mapping[str, int], route: str = "/orders", door: Door = "request", source: str = ""
) -> dict[Counted, int]:
    """So many calls of one route that ended with these verdicts."""
    return {Counted(verdict, door, route, source): number for verdict, number in verdicts.items()}


A_FAILURE = Final("failed", Response(500, ((b"content-type", b"text/plain"),), b"it broke"))


class Half(Protocol):
    """One half of a store, called as if it were blocking; the blocking half is one as it stands."""

    def reserve(self, claim: Claim) -> Reservation: ...
    def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation: ...
    def look(self, id: bytes) -> Found | None: ...
    def checkpoint(self, claim: Claim, head: Response) -> bool: ...
    def finish(self, claim: Claim, final: Final) -> bool: ...
    def release(self, claim: Claim) -> None: ...


class AwaitedHalf:
    """The other half, each call in an event loop that lives as long as the test."""

    def __init__(self, store: AsyncStore, runner: asyncio.Runner) -> None:
        self._store = store
        self._runner = runner

    def reserve(self, claim: Claim) -> Reservation:
        return self._runner.run(self._store.reserve(claim))

    def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Reservation:
        return self._runner.run(self._store.take_over(claim, previous, state))

    def look(self, id: bytes) -> Found | None:
        return self._runner.run(self._store.look(id))

    def checkpoint(self, claim: Claim, head: Response) -> bool:
        return self._runner.run(self._store.checkpoint(claim, head))

    def finish(self, claim: Claim, final: Final) -> bool:
        return self._runner.run(self._store.finish(claim, final))

    def release(self, claim: Claim) -> None:
        self._runner.run(self._store.release(claim))


def the_record(half: Half, claim: Claim) -> Record:
    """The record of a claim's key, which must be there."""
    found = half.look(claim.id)
    assert found is not None, "the record is gone"
    return found.record


class Harness:
    """The fixtures.  A store of your own overrides `store`, and perhaps the two after it."""

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        raise NotImplementedError("the suite needs a fixture `store` that returns a new, empty store")

    @pytest.fixture
    def elapse(self, clock: ManualClock) -> Elapse:
        """Let time pass for the store."""
        return clock.elapse

    @pytest.fixture
    def lose_lease(self) -> LoseLease:
        """Remove the lease from a record, as damage would."""
        pytest.skip("this store has no fixture `lose_lease`")

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def admin(self, store: Store) -> Iterator[Admin]:
        """The operator's end.  Its tables are created first: only services create them by themselves."""
        admin = store.open_admin()
        admin.migrate()
        yield admin
        admin.close()

    @pytest.fixture(params=["blocking", "aio"])
    def half(self, request: pytest.FixtureRequest, store: Store) -> Iterator[Half]:
        if request.param == "blocking":
            yield store
        else:
            with asyncio.Runner() as runner:
                yield AwaitedHalf(store.aio, runner)
