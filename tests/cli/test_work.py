"""`retrysafe work`: what it is given, and how it ends."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.terminal import Run, environment, run

SERVICE = """
import asyncio, time
from retrysafe import Guard
from retrysafe.callbacks import receipts

guard = Guard("sqlite:///inbox.db", profile="job-callbacks")
finished = receipts(guard, source="jobs", inbox=True)
bare = receipts(guard, source="bare")
idle = receipts(guard, source="idle", inbox=True)
newer = receipts(Guard("sqlite:///newer.db", profile="job-callbacks"), source="jobs", inbox=True)

@finished.handler
@newer.handler
def handle(event: dict[str, str]) -> None:
    print("handling", event["callback_id"], flush=True)
    time.sleep(float(event.get("takes", 0)))
    if "fails" in event:
        raise ConnectionError("the bucket is gone")

def make():
    return finished

coroutines = receipts(guard, source="coroutines", inbox=True)

@coroutines.handler
async def handle_async(event: dict[str, str]) -> None:
    print("handling", event["callback_id"], flush=True)
    await asyncio.sleep(float(event.get("takes", 0)))
"""

Work = Callable[..., Run]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    (tmp_path / "service.py").write_text(SERVICE)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run("work", *arguments)


def deliver(to: str = "finished", **fields: str) -> None:
    delivered = f"service.{to}.handle({fields!r})"
    if to == "coroutines":
        delivered = f"asyncio.run(service.{to}.handle_async({fields!r}))"
    code = f"import asyncio, service; {delivered}; service.guard.close()"
    subprocess.run([sys.executable, "-c", code], check=True, env=environment(None))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["service"], "'service' does not name receipts"),
        (["service.py:finished"], "as servers take them: shop.main:finished"),
        (["service:nothing"], "Write the name of the receipts in service: service:finished"),
        (["service:guard"], "service:guard is a retrysafe.guard.Guard, and not receipts"),
        (["service:finished", "--factory"], "it is not a factory of receipts"),
        (["service:make"], "service:make is a function, and not receipts"),
        (["service:bare"], "store no payloads"),
        (["service:idle"], "have no handler"),
        (["service:finished", "--poll", "soon"], "'soon' is not a valid duration"),
        (["service:finished", "--poll", "0s"], "must be greater than zero"),
        (["nowhere:finished"], "there is no module nowhere"),
    ],
)
def test_wrong_usage(work: Work, arguments: list[str], said: str) -> None:
    """In the words of what a worker needs, and nothing is handled."""
    done = work(*arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_what_is_due_is_handled(work: Work) -> None:
    """Once, and it ends; also by receipts that a function returns."""
    deliver(callback_id="c-1", run_id="run-7")
    done = work("service:finished", "--once")
    assert (done.code, done.out) == (0, "handling c-1\n")
    assert "Handled 1, failed 0." in done.err
    assert work("service:make", "--factory", "--once").code == 0


def test_a_failure_is_told(work: Work) -> None:
    deliver(callback_id="c-1", fails="yes")
    done = work("service:finished", "--once")
    assert done.code == 1
    assert "Handled 0, failed 1." in done.err
    assert "ConnectionError: the bucket is gone" in done.err


def test_tables_of_another_version(work: Work) -> None:
    """It says so and ends, where it would otherwise wait for an operator for ever."""
    assert run("migrate", "--store", "sqlite:///newer.db").code == 0
    code = "import sqlite3; c = sqlite3.connect('newer.db'); c.execute(\"UPDATE retrysafe_meta SET value = 9 "
    code += "WHERE name = 'schema'\"); c.commit()"
    subprocess.run([sys.executable, "-c", code], check=True)
    done = work("service:newer", "--once")
    assert done.code == 3
    assert "schema version 9" in done.err


def test_coroutine_functions(work: Work) -> None:
    deliver("coroutines", callback_id="c-1")
    done = work("service:coroutines", "--once")
    assert (done.code, done.out) == (0, "handling c-1\n")
    assert "Handled 1, failed 0." in done.err


@pytest.mark.parametrize("handler", ["finished", "coroutines"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_after_what_it_has_begun(work: Work, number: signal.Signals, handler: str) -> None:
    deliver(handler, callback_id="c-1", takes="1")
    deliver(handler, callback_id="c-2", takes="1")
    command = [sys.executable, "-m", "retrysafe", "work", f"service:{handler}", "--concurrency", "1"]
    with subprocess.Popen(
        command, env=environment(None), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("handling c-")
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "")
    assert "Handled 1, failed 0." in err
