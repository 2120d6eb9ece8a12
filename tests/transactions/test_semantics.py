"""What a handler wrote and what it answered are one: the same for every library that can join."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from retrysafe import NotDone, current
from retrysafe.asgi import Middleware
from tests.core.asgi_calls import Client, Message
from tests.transactions.ledgers import EVERYWHERE, Broken, Ledger, place_of

Handler = Callable[[], Awaitable[int | None]]
Scenario = Callable[[Ledger], Coroutine[Any, Any, None]]
Play = Callable[..., None]


@pytest.fixture(params=[*EVERYWHERE])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    """Runs a scenario with a ledger that is written in one of the libraries."""
    place = place_of(request.param, tmp_path, request)
    opened = EVERYWHERE[request.param]

    def run(scenario: Scenario, **options: Any) -> None:
        async def in_loop() -> None:
            async with opened(place, **options) as ledger:
                await scenario(ledger)

        asyncio.run(in_loop())

    return run


async def ask(
    ledger: Ledger, handler: Handler, key: bytes = b"k", *, raises: type[Exception] | None = None
) -> Client:
    """One request whose handler does this; it answers 201 unless the handler says otherwise."""

    async def app(scope: Message, receive: Any, send: Any) -> None:
        status = await handler() or 201
        await send(
            {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]}
        )
        await send({"type": "http.response.body", "body": b"answer"})

    client = Client(Middleware(app, ledger.guard), key=key)
    if raises is None:
        return await client()
    with pytest.raises(raises):
        await client()
    return client


def test_together(play: Play) -> None:
    """The effect and the answer are there at once, and the retry gets the answer without the effect."""

    async def scenario(ledger: Ledger) -> None:
        first = await ask(ledger, lambda: ledger.put("a"))
        assert (first.status, first.replayed, ledger.audit()) == (201, False, ["a"])
        again = await ask(ledger, lambda: ledger.put("a"))
        assert (again.status, again.replayed, again.body, ledger.audit()) == (201, True, b"answer", ["a"])

    play(scenario)


def test_nothing_is_real_before_the_answer(play: Play) -> None:
    """What the handler has committed is seen by itself, and by nobody else until it has answered."""

    async def scenario(ledger: Ledger) -> None:
        async def handler() -> None:
            await ledger.put("a")
            assert await ledger.look() == ["a"]
            assert await asyncio.to_thread(ledger.audit) == []

        await ask(ledger, handler)
        assert ledger.audit() == ["a"]

    play(scenario)


@pytest.mark.parametrize("status", [500, 503, 401, 429])
def test_an_answer_that_says_that_it_failed(play: Play, status: int) -> None:
    """Everything is undone, the key is free, and the retry runs."""

    async def scenario(ledger: Ledger) -> None:
        async def fails() -> int:
            await ledger.put("a")
            return status

        first = await ask(ledger, fails)
        assert (first.status, first.body, ledger.audit()) == (status, b"answer", [])
        second = await ask(ledger, lambda: ledger.put("b"))
        assert (second.status, second.replayed, ledger.audit()) == (201, False, ["b"])

    play(scenario)


@pytest.mark.parametrize("status", [200, 302, 404, 409])
def test_an_answer_that_settles_it(play: Play, status: int) -> None:
    """A refusal of the application's is an outcome like any other: what it wrote is kept with it."""

    async def scenario(ledger: Ledger) -> None:
        async def handler() -> int:
            await ledger.put("a")
            return status

        assert (await ask(ledger, handler)).status == status
        again = await ask(ledger, handler)
        assert (again.status, again.replayed, ledger.audit()) == (status, True, ["a"])

    play(scenario)


@pytest.mark.parametrize("error", [Broken, NotDone])
def test_an_exception(play: Play, error: type[Exception]) -> None:
    """Undone and free, whatever was raised, and even if a derived key was given out before."""

    async def scenario(ledger: Ledger) -> None:
        async def raises() -> None:
            current().derive("charge")
            await ledger.put("a")
            raise error

        first = await ask(ledger, raises, raises=Broken if error is Broken else None)
        assert first.status == (500 if error is Broken else 503)
        assert (b"x-should-retry", b"true") in first.got[0]["headers"]
        assert ledger.audit() == []
        assert (await ask(ledger, lambda: ledger.put("b"))).status == 201
        assert ledger.audit() == ["b"]

    play(scenario)


def test_several_blocks(play: Play) -> None:
    """One that fails and is caught takes itself back, and neither what came before nor what comes after."""

    async def scenario(ledger: Ledger) -> None:
        async def handler() -> None:
            await ledger.put("a")
            with pytest.raises(Broken):
                await ledger.put_and_fail("b")
            await ledger.put("c")

        assert (await ask(ledger, handler)).status == 201
        assert ledger.audit() == ["a", "c"]

    play(scenario)


def test_the_first_block_fails(play: Play) -> None:
    """Nothing came before it; what comes after it is kept all the same."""

    async def scenario(ledger: Ledger) -> None:
        async def handler() -> None:
            with pytest.raises(Broken):
                await ledger.put_and_fail("a")
            await ledger.put("b")

        assert (await ask(ledger, handler)).status == 201
        assert ledger.audit() == ["b"]

    play(scenario)


def test_all_blocks_fail(play: Play) -> None:
    """The handler found something to answer; it is kept, with nothing."""

    async def scenario(ledger: Ledger) -> None:
        async def handler() -> int:
            with pytest.raises(Broken):
                await ledger.put_and_fail("a")
            return 422

        assert (await ask(ledger, handler)).status == 422
        again = await ask(ledger, handler)
        assert (again.status, again.replayed, ledger.audit()) == (422, True, [])

    play(scenario)


def test_a_handler_that_used_nothing(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """Its answer is kept; and the log says once that nothing was committed with it."""

    async def scenario(ledger: Ledger) -> None:
        async def handler() -> None:
            pass

        with caplog.at_level(logging.WARNING, "retrysafe"):
            for key in (b"k", b"l"):
                assert not (await ask(ledger, handler, key)).replayed
                assert (await ask(ledger, handler, key)).replayed
        said = [record.getMessage() for record in caplog.records if "used no session" in record.getMessage()]
        assert len(said) == 1

    play(scenario)


def test_a_response_that_needs_no_session(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """A redirect, or a refusal by a framework's validation before any session is opened: no warning."""

    async def scenario(ledger: Ledger) -> None:
        async def redirects() -> int:
            return 303

        async def refuses() -> int:
            return 422

        with caplog.at_level(logging.WARNING, "retrysafe"):
            assert (await ask(ledger, redirects, b"redirect")).status == 303
            assert (await ask(ledger, redirects, b"redirect")).replayed
            assert (await ask(ledger, refuses, b"refuse")).status == 422
        assert "used no session" not in caplog.text

    play(scenario)


def test_outside_of_a_guarded_call(play: Play) -> None:
    """They are what they always were."""

    async def scenario(ledger: Ledger) -> None:
        await ledger.put("a")
        with pytest.raises(Broken):
            await ledger.put_and_fail("b")
        assert ledger.audit() == ["a"] == await ledger.look()

    play(scenario)


def test_after_the_commit(play: Play) -> None:
    """What was left to be called sees what was committed; not at all if it was not; and may fail."""

    async def scenario(ledger: Ledger) -> None:
        seen: list[object] = []

        async def later() -> None:
            seen.append("awaited")

        async def handler() -> int:
            await ledger.put("a")
            current().on_commit(lambda: seen.append(ledger.audit()))
            current().on_commit(lambda: 1 / 0)
            current().on_commit(later)
            return status

        status = 500
        await ask(ledger, handler)
        assert seen == []
        status = 201
        assert (await ask(ledger, handler)).status == 201
        assert seen == [["a"], "awaited"]
        assert (await ask(ledger, handler)).replayed
        assert seen == [["a"], "awaited"]

    play(scenario)


def test_overtaken(play: Play) -> None:
    """Whoever slept past the lease finds the key taken, takes everything back, and tells what counts."""

    async def scenario(ledger: Ledger) -> None:
        async def sleeps() -> None:
            ledger.guard.runtime.leases.drop(current().claim)  # as if this process had been frozen
            await asyncio.sleep(0.6)
            if not (await ask(ledger, lambda: ledger.put("second"))).replayed:
                await ledger.put("first")

        # The sleeper writes after its successor: on SQLite it would otherwise keep it from writing at all.
        first = await ask(ledger, sleeps)
        assert (first.replayed, first.body, ledger.audit()) == (True, b"answer", ["second"])

    play(scenario, lease=0.5)


def test_a_hundred_at_once(play: Play) -> None:
    """Of many equal requests one has its effect."""

    async def scenario(ledger: Ledger) -> None:
        clients = await asyncio.gather(*(ask(ledger, lambda: ledger.put("a")) for _ in range(25)))
        assert {client.status for client in clients} <= {201, 409}
        assert ledger.audit() == ["a"]

    play(scenario)
