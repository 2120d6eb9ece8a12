"""A database refuses, goes silent, loses answers, dies and comes back (F10 to F15), in the modes that it has.

Store, application and proxy are in this process; the server is a real one, and what is in it is read by
connections of their own.  Where nothing is committed together ("lease"), an order is written by an ordinary
transaction.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

import pytest

from retrysafe.testing.proxy import Proxy
from tests.faults.books import Books
from tests.faults.databases import IN_BOTH_MODES, Database, Mode, Server
from tests.faults.wire import Heard, fresh

BOUND = 15.0
"""No request takes longer, however busy the machine is: a few operations of two seconds each."""


class Place(NamedTuple):
    """A server that may be treated badly, and the mode in which it is used."""

    database: Database
    mode: Mode
    server: Server

    def behind_proxy(
        self, lease: float = 30.0, abandoned: str = "hold"
    ) -> AbstractAsyncContextManager[tuple[Books, Proxy]]:
        return self.database.behind_proxy(self.server, self.mode, lease, abandoned)


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Server]]:
    """Those that run, by their names: each is started for the first test that needs it."""
    started: dict[str, Server] = {}
    yield started
    for server in started.values():
        server.close()


@pytest.fixture(params=IN_BOTH_MODES)
def place(request: pytest.FixtureRequest, servers: dict[str, Server]) -> Place:
    database: Database
    database, mode = request.param
    if database.name not in servers:
        servers[database.name] = database.started()
    return Place(database, mode, servers[database.name])


def test_refused(place: Place) -> None:
    """F10: 503 with `Retry-After`, and the handler has not run; when the server is back, it runs."""

    async def play() -> None:
        async with place.behind_proxy() as (books, proxy):
            before = books.attempts
            proxy.refuse()
            proxy.cut()
            began = time.monotonic()
            heard = await books.post(key := fresh())
            assert time.monotonic() - began < BOUND
            assert (heard.status, heard.code) == (503, "store-unavailable")
            assert int(heard.header(b"retry-after") or 0) >= 1
            assert books.attempts == before
            proxy.restore()
            assert (await books.settled(key)).status == 201
            assert books.attempts == before + 1

    asyncio.run(play())


def test_a_server_that_takes_no_writes(place: Place) -> None:
    """F19: a primary that was demoted is 503, and the handler has not run; one that writes serves the key."""

    async def play() -> None:
        async with place.behind_proxy() as (books, proxy):
            before = books.attempts
            with place.database.read_only(books.url):
                proxy.cut()  # whoever connects now meets a server that only reads
                heard = await books.post(key := fresh())
                assert (heard.status, heard.code) == (503, "store-unavailable")
                assert books.attempts == before
            proxy.cut()
            assert (await books.settled(key)).status == 201
            books.assert_balanced()

    asyncio.run(play())


def test_all_connections_in_use(place: Place) -> None:
    """F10, I17: more claims than connections, and each of those waits for a lock: all are told in time."""

    async def play() -> None:
        async with place.behind_proxy() as (books, _):
            before = books.attempts
            with place.database.locked(place.server, books.url):
                began = time.monotonic()
                keys = [fresh() for _ in range(24)]
                heard = await asyncio.gather(*(books.post(key) for key in keys))
                assert time.monotonic() - began < BOUND
                assert {(answer.status, answer.code) for answer in heard} == {(503, "store-unavailable")}
                assert books.attempts == before
            for key in keys:
                assert (await books.settled(key)).status == 201
            assert books.attempts == before + len(keys)

    asyncio.run(play())


def test_a_claim_whose_acknowledgement_is_lost(place: Place) -> None:
    """F11, I16: the claim is made again with the same token, and is ours: one execution, at once."""

    async def play() -> None:
        async with place.behind_proxy() as (books, proxy):
            before = books.attempts
            lost = proxy.lose_response(place.database.claim)
            heard = await books.post(key := fresh())
            assert lost.sprung
            assert (heard.status, heard.replayed) == (201, False)
            assert books.attempts == before + 1
            assert books.orders(key) == [heard.body.decode()]
            replay = await books.post(key)
            assert (replay.body, replay.replayed) == (heard.body, True)
            books.assert_balanced()

    asyncio.run(play())


def test_a_completion_whose_acknowledgement_is_lost(place: Place) -> None:
    """F12, I16: applied, and nobody was told.  Lease: said again, it is what was said before.  In a
    transaction: it is undone with it, and the retry runs; or it was the COMMIT, and that is found out."""

    async def play() -> None:
        async with place.behind_proxy() as (books, proxy):
            lost = proxy.lose_response("^COMMIT" if place.mode == "tx" else place.database.completion)
            heard = await books.post(key := fresh())
            assert lost.sprung
            assert (heard.status, heard.replayed) == (201, False)
            assert heard.header(b"idempotency-stored") is None
            assert books.orders(key) == [heard.body.decode()]
            replay = await books.post(key)
            assert (replay.body, replay.replayed) == (heard.body, True)
            books.assert_balanced()
            books.assert_none_in_transaction()

    asyncio.run(play())


@pytest.mark.parametrize("abandoned", ["hold", "retry"])
def test_down_from_the_handlers_end_on(place: Place, abandoned: str) -> None:
    """F13: lease mode gives the client its real answer, marked as not stored, and what a retry hears is the
    policy's; in a transaction nothing was committed, nothing is said, and the retry runs."""

    async def play() -> None:
        async with place.behind_proxy(lease=1.0, abandoned=abandoned) as (books, proxy):

            async def and_down(books: Books, key: str) -> None:
                await books.write(key)
                proxy.refuse()
                proxy.cut()

            books.handle = and_down
            began = time.monotonic()
            heard = await books.post(key := fresh())
            assert time.monotonic() - began < BOUND
            first, books.handle = books.answers[key], Books.write
            if place.mode == "tx":
                assert (heard.status, heard.code) == (503, "store-unavailable")
                assert books.orders(key) == []
                proxy.restore()
                assert (await books.settled(key)).status == 201
                books.assert_balanced()
                return
            assert (heard.status, heard.body.decode()) == (201, first)
            assert heard.header(b"idempotency-stored") == b"false"
            proxy.restore()
            after = await _no_longer_in_flight(books, key)
            if abandoned == "hold":
                assert (after.status, after.code) == (409, "outcome-unknown")
                assert books.orders(key) == [first]
            else:
                assert (after.status, after.replayed) == (201, False)
                assert books.orders(key) == [first, after.body.decode()]

    asyncio.run(play())


async def _no_longer_in_flight(books: Books, key: str) -> Heard:
    while (heard := await books.post(key)).code in ("in-flight", "store-unavailable"):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    return heard


@pytest.mark.parametrize("who", ["the network", "the server"])
def test_black_hole_at_the_claim(place: Place, who: str) -> None:
    """F14: nobody answers and nobody hangs up.  Every request is answered in time, and no handler runs."""

    async def play() -> None:
        async with place.behind_proxy() as (books, proxy):
            before = books.attempts
            keys = [fresh() for _ in range(12)]
            (proxy.swallow if who == "the network" else place.server.freeze)()
            try:
                began = time.monotonic()
                heard = await asyncio.gather(*(books.post(key) for key in keys))
                assert time.monotonic() - began < BOUND
            finally:
                (proxy.restore if who == "the network" else place.server.thaw)()
            assert {(answer.status, answer.code) for answer in heard} == {(503, "store-unavailable")}
            assert books.attempts == before
            for key in keys:
                assert (await books.settled(key)).status == 201
            assert books.attempts == before + len(keys)
            books.assert_balanced()

    asyncio.run(play())


def test_black_hole_at_the_end(place: Place) -> None:
    """F14, I17: the same when the handler has written.  Nobody waits for ever, and the books balance."""

    async def play() -> None:
        async with place.behind_proxy(lease=2.0, abandoned="retry") as (books, proxy):

            async def and_silent(books: Books, key: str) -> None:
                await books.write(key)
                proxy.swallow()

            books.handle = and_silent
            try:
                async with asyncio.timeout(BOUND):
                    heard = await books.post(key := fresh())
            finally:
                proxy.restore()
            books.handle = Books.write
            if place.mode == "tx":
                assert (heard.status, heard.code) == (503, "store-unavailable")
                assert (await books.settled(key)).status == 201
                books.assert_balanced()
            else:
                assert (heard.status, heard.header(b"idempotency-stored")) == (201, b"false")
            books.assert_none_in_transaction()

    asyncio.run(play())


def test_killed_and_restarted_under_load(place: Place) -> None:
    """F15: whatever was acknowledged is still there when the server has come back, byte for byte."""

    async def play() -> None:
        url = place.database.new(place.server)
        more = {"effects": "repeatable"} if place.mode == "lease" else {}
        async with place.database.opened(url, url, url, lease=1.0, **more) as books:
            told: dict[str, bytes] = {}
            going = True

            async def customer() -> None:
                while going:
                    heard = await books.post(key := fresh())
                    if heard.status == 201 and heard.header(b"idempotency-stored") is None:
                        told[key] = heard.body
                    else:
                        assert heard.status in (201, 500, 503), heard
                        await asyncio.sleep(0.01)

            customers = [asyncio.ensure_future(customer()) for _ in range(8)]
            for _ in range(3):
                enough = len(told) + 20
                while len(told) < enough:  # noqa: ASYNC110 - it is a number
                    await asyncio.sleep(0.01)
                place.server.kill()
                await asyncio.to_thread(place.server.start)
            going = False
            await asyncio.gather(*customers)
            assert len(told) >= 60
            for key, body in told.items():
                replay = await books.post(key)
                assert (replay.status, replay.replayed, replay.body) == (201, True, body)
                if place.mode == "tx":
                    assert books.orders(key) == [body.decode()]
            if place.mode == "tx":
                books.assert_balanced()

    asyncio.run(play())
