"""`Guard`: what its routes share, and how it is drained."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from retrysafe import Guard, scopes, stores
from retrysafe._core.attempt import DEFAULT_SECRET
from retrysafe.errors import ConfigurationError
from retrysafe.policy import Wire
from retrysafe.stores.memory import MemoryStore
from tests.core.values import eventually, no_leaked_threads


def a_guard(**options: float) -> Guard:
    return Guard("memory:", scope=scopes.public(), grace=options.get("grace", 30.0))


def test_a_store_or_its_address() -> None:
    """Either will do; a store is used as it is."""
    store = MemoryStore()
    assert Guard(store, scope=scopes.public()).store is store
    assert isinstance(a_guard().store, MemoryStore)
    with pytest.raises(ConfigurationError, match="scheme"):
        Guard("nonsense", scope=scopes.public())


def test_opening_is_the_stores_business() -> None:
    """`stores.open` and the guard's short form give the same kind of store."""
    assert type(stores.open("memory:")) is type(a_guard().store)


@pytest.mark.parametrize("secret", ["", "short", "x" * 15, b"x" * 15])
def test_a_short_secret_is_refused(secret: str | bytes) -> None:
    """It could be guessed; the message says how long it must be, and does not repeat it (S24)."""
    with pytest.raises(ConfigurationError, match="at least 16") as error:
        Guard("memory:", scope=scopes.public(), secret=secret)
    assert str(len(secret)) in str(error.value)
    assert "short" not in str(error.value)


@pytest.mark.parametrize("secret", ["x" * 16, b"x" * 16])
def test_a_secret_is_taken(secret: str | bytes) -> None:
    """As text or as bytes, it is the same."""
    assert Guard("memory:", scope=scopes.public(), secret=secret).runtime.secret == b"x" * 16


def test_without_a_secret_there_is_a_constant() -> None:
    """Derived keys are still stable across processes."""
    assert a_guard().runtime.secret == DEFAULT_SECRET


def test_the_wire_is_shared() -> None:
    """By the guard's own rules and those of its routes."""
    wire = Wire(key_header="X-Key")
    guard = Guard("memory:", scope=scopes.public(), wire=wire)
    assert guard.rules.wire is wire
    assert guard.compile({"lease": 1.0}).names.key == b"x-key"


# --- Draining


def test_an_idle_guard_is_drained_at_once() -> None:
    """And stays so, until it is resumed."""
    guard = a_guard()
    assert not guard.runtime.is_draining()
    assert guard.drain() == 0
    assert guard.runtime.is_draining()
    guard.resume()
    assert not guard.runtime.is_draining()


def test_draining_waits_for_what_runs() -> None:
    """From the first moment on nothing new is claimed; it returns when the last one is done."""
    guard, drained = a_guard(), list[int]()
    guard.runtime.running[b"one"] = 0.0
    guard.runtime.running[b"two"] = 0.0
    thread = threading.Thread(target=lambda: drained.append(guard.drain()))
    thread.start()
    eventually(guard.runtime.is_draining)
    del guard.runtime.running[b"one"]
    assert thread.is_alive()
    del guard.runtime.running[b"two"]
    thread.join(20)
    assert drained == [0]


def test_draining_ends_with_the_grace_time() -> None:
    """Handlers that outlive it are counted, and not interrupted."""
    guard = a_guard(grace=0.05)
    guard.runtime.running[b"one"] = 0.0
    began = time.monotonic()
    assert guard.drain() == 1
    assert time.monotonic() - began >= 0.05
    assert guard.drain(grace=0.0) == 1
    assert set(guard.runtime.running) == {b"one"}


def test_draining_without_blocking() -> None:
    """The event loop goes on meanwhile, and finishes what is waited for."""
    guard = a_guard()

    async def scene() -> int:
        guard.runtime.running[b"one"] = 0.0
        draining = asyncio.ensure_future(guard.drain_async())
        await asyncio.sleep(0)
        assert guard.runtime.is_draining()
        assert not draining.done()
        del guard.runtime.running[b"one"]
        return await draining

    assert asyncio.run(scene()) == 0
    guard.runtime.running[b"two"] = 0.0
    assert asyncio.run(guard.drain_async(grace=0.01)) == 1


def test_closing_twice() -> None:
    """Is harmless, and leaves no thread."""
    with no_leaked_threads():
        guard = a_guard()
        guard.close()
        guard.close()


# --- Signals, each in a process of its own

PREAMBLE = """
import os, signal, sys
from retrysafe import Guard, scopes
guard = Guard("memory:", scope=scopes.public())
def say(*words):
    print(*words, flush=True)
"""


def run(script: str) -> tuple[int, list[str]]:
    process = subprocess.run(
        [sys.executable, "-c", PREAMBLE + script], capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in process.stderr, process.stderr
    return process.returncode, process.stdout.split()


def test_a_signal_drains_and_then_does_what_it_did() -> None:
    """The handler that was there before is called afterwards, when nothing is claimed any more."""
    code, said = run("""
signal.signal(signal.SIGTERM, lambda number, frame: say("previous", guard.runtime.draining))
guard.drain_on(signal.SIGTERM)
say(guard.runtime.draining)
signal.raise_signal(signal.SIGTERM)
say("on", guard.runtime.draining)
""")
    assert code == 0
    assert said == ["False", "previous", "True", "on", "True"]


def test_a_signal_that_ends_the_process_still_does() -> None:
    """By default SIGTERM kills, and by SIGTERM it is killed: supervisors look at that."""
    code, said = run("""
guard.drain_on()
say("before")
signal.raise_signal(signal.SIGTERM)
say("after")
""")
    assert code == -signal.SIGTERM
    assert said == ["before"]


def test_a_signal_that_is_ignored_still_is() -> None:
    """But it drains."""
    code, said = run("""
signal.signal(signal.SIGTERM, signal.SIG_IGN)
guard.drain_on(signal.SIGTERM)
signal.raise_signal(signal.SIGTERM)
say(guard.runtime.draining)
""")
    assert (code, said) == (0, ["True"])


def test_several_signals() -> None:
    """Each keeps the handler that it had."""
    code, said = run("""
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda received, frame: say(signal.Signals(received).name))
guard.drain_on(signal.SIGTERM, signal.SIGUSR1)
signal.raise_signal(signal.SIGUSR1)
say(guard.runtime.draining)
signal.raise_signal(signal.SIGTERM)
""")
    assert (code, said) == (0, ["SIGUSR1", "True", "SIGTERM"])


def test_an_interrupt_is_still_one() -> None:
    """Python's own handler raises `KeyboardInterrupt`, and goes on doing so."""
    code, said = run("""
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has it ignored in what it runs behind
guard.drain_on(signal.SIGINT)
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    say("interrupted", guard.runtime.draining)
""")
    assert (code, said) == (0, ["interrupted", "True"])


@pytest.mark.parametrize("wait_threads", [-1, 1.5, True, "2", None])
def test_a_number_of_threads_that_is_not_valid(wait_threads: Any) -> None:
    """Refused where it is given, and not by the first request that waits."""
    with pytest.raises(ConfigurationError, match=r"wait_threads=.* must be a whole number, zero or more"):
        Guard("memory:", scope=scopes.public(), wait_threads=wait_threads)
