"""The running attempt, as the code below a handler sees it."""

import asyncio
import contextvars
import threading

import pytest

from retrysafe import current
from retrysafe._core.attempt import Attempt, enter
from retrysafe.errors import NotGuarded
from tests.core.values import a_claim

CLAIM = a_claim("a-key-that-nobody-may-see")


def inside(attempt: Attempt) -> contextvars.Context:
    """A context in which this attempt runs."""
    context = contextvars.copy_context()
    context.run(enter, attempt)
    return context


def test_derived_keys_are_stable() -> None:
    """The same on every attempt, under another token and request id: what a retry may change (I24)."""
    retry = CLAIM._replace(token=b"other", request_id="other", fingerprint=b"other", lease=1.0)
    assert Attempt(CLAIM, 1).derive("charge") == Attempt(retry, 7).derive("charge")


def test_derived_keys_differ() -> None:
    """By name, by record and by the application's secret."""
    another = CLAIM._replace(id=b"o" * 32)
    keys = {
        Attempt(CLAIM, 1).derive("charge"),
        Attempt(CLAIM, 1).derive("refund"),
        Attempt(another, 1).derive("charge"),
        Attempt(CLAIM, 1, b"s" * 16).derive("charge"),
        Attempt(CLAIM, 1).derive("Charge"),
        Attempt(CLAIM, 1).derive("charge "),
    }
    assert len(keys) == 6


def test_a_derived_key_reveals_nothing() -> None:
    """Neither the client's key, nor the record's identity, nor the name: it goes to somebody else."""
    key = Attempt(CLAIM, 1).derive("charge")
    assert len(key) == 64
    assert set(key) <= set("0123456789abcdef")
    assert CLAIM.key is not None
    assert CLAIM.key not in key
    assert CLAIM.id.hex() not in key


def test_deriving_is_remembered() -> None:
    """Whoever was given a key may have used it."""
    attempt = Attempt(CLAIM, 1)
    assert not attempt.derived
    attempt.derive("charge")
    assert attempt.derived


def test_a_derived_key_has_a_name() -> None:
    """Two outside calls under one empty name would be one call."""
    attempt = Attempt(CLAIM, 1)
    with pytest.raises(ValueError, match="no name"):
        attempt.derive("")
    assert not attempt.derived


def test_what_a_handler_sees() -> None:
    """Its number, whose key it is, and the id that replays will carry."""
    attempt = Attempt(CLAIM, 2)
    assert (attempt.number, attempt.scope, attempt.request_id) == (2, CLAIM.scope, CLAIM.request_id)
    assert not attempt.lost


def test_not_started_is_remembered() -> None:
    """`settle` believes it or does not."""
    attempt = Attempt(CLAIM, 1)
    assert not attempt.said_not_started
    attempt.not_started()
    assert attempt.said_not_started


def test_the_repr_reveals_nothing() -> None:
    """It ends up in logs and tracebacks (S24)."""
    text = repr(Attempt(CLAIM, 2, b"a secret of the application"))
    assert CLAIM.key is not None
    assert CLAIM.key not in text
    assert "secret" not in text
    assert "2" in text


def test_outside_a_guarded_call() -> None:
    """The message says where it works, and how to take it along."""
    with pytest.raises(NotGuarded, match=r"no guarded call.*copy_context"):
        contextvars.Context().run(current)


def test_current() -> None:
    """In the same context, and not outside of it."""
    attempt = Attempt(CLAIM, 1)
    assert inside(attempt).run(current) is attempt
    with pytest.raises(NotGuarded):
        current()


def test_in_a_worker_thread() -> None:
    """`asyncio.to_thread` takes the context along."""
    attempt = Attempt(CLAIM, 1)

    async def handler() -> Attempt:
        enter(attempt)
        return await asyncio.to_thread(current)

    assert asyncio.run(handler()) is attempt


def test_in_a_task() -> None:
    """A task that a handler starts belongs to it; one that was started before does not."""
    attempt = Attempt(CLAIM, 1)

    async def ask() -> Attempt:
        await asyncio.sleep(0)
        return current()

    async def handler() -> tuple[Attempt, BaseException | Attempt]:
        before = asyncio.ensure_future(ask())
        await asyncio.sleep(0)
        enter(attempt)
        after = asyncio.ensure_future(ask())
        outside, inside = await asyncio.gather(before, after, return_exceptions=True)
        assert isinstance(inside, Attempt)
        return inside, outside

    inside, outside = asyncio.run(handler())
    assert inside is attempt
    assert isinstance(outside, NotGuarded)


@pytest.mark.parametrize("copied", [True, False])
def test_in_a_thread(copied: bool) -> None:
    """A bare thread knows nothing; one that is started with a copied context does."""
    attempt, seen = Attempt(CLAIM, 1), list[object]()

    def work() -> None:
        try:
            seen.append(current())
        except NotGuarded:
            seen.append(None)

    def handler() -> None:
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run if copied else work, args=(work,) if copied else ())
        thread.start()
        thread.join()

    inside(attempt).run(handler)
    assert seen == [attempt if copied else None]
