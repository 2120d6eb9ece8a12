"""However the demo is ended, no process and no file is left."""

import signal
import time

import pytest

from retrysafe.demo.signals import defer_signals, raise_if_stopped
from tests.demo.conftest import Start
from tests.demo.demo_process import RUN, SERVE, interrupt

MOMENTS = ["--seed", "1  without keys", "2  with keys", "3  with keys", "kill -9", "restarted"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c(start: Start, moment: str) -> None:
    """At any moment: it ends at once, with the exit code that shells expect."""
    demo = start(RUN)
    demo.read_until(lambda text: moment in text)
    interrupt(demo)
    assert demo.end() == 130, demo.text
    assert "Traceback" not in demo.text
    assert "No process is left running" in demo.text
    demo.assert_cleaned_up()


def test_an_interrupt_is_deferred() -> None:
    """Raised inside of `concurrent.futures.wait`, where the demo often is, it left a lock taken,
    and the threads of the demo waited for it for ever."""
    with defer_signals():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            raise_if_stopped()
    with defer_signals():
        raise_if_stopped()


def test_ctrl_c_again_and_again(start: Start) -> None:
    """Several in a row do not disturb the clean-up."""
    demo = start(RUN)
    demo.read_until(lambda text: "2  with keys" in text)
    for _ in range(20):
        interrupt(demo)
        time.sleep(0.02)
    # The last ones may come after the clean-up, while the interpreter itself ends.
    assert demo.end() in (130, -signal.SIGINT), demo.text
    assert "No process is left running" in demo.text
    assert "Traceback" not in demo.text
    demo.assert_cleaned_up()


def test_ctrl_c_while_customers_pay(start: Start) -> None:
    """In the middle of it, typed on a terminal, where it reaches the whole process group."""
    demo = start(RUN, columns=100)
    demo.read_until(lambda text: "30/60" in text or "2  with keys" in text)
    demo.type(b"\x03")
    assert demo.end() == 130, demo.text
    assert "Traceback" not in demo.text
    demo.assert_cleaned_up()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("code", [RUN, SERVE], ids=["run", "serve"])
def test_other_signals(start: Start, number: signal.Signals, code: str) -> None:
    """A supervisor's SIGTERM and a closed terminal do the same."""
    demo = start(code)
    demo.read_until(lambda text: "1  without keys" in text or "Paste these" in text)
    interrupt(demo, number)
    demo.end()
    assert "Traceback" not in demo.text
    demo.assert_cleaned_up()


@pytest.mark.parametrize("code", [RUN, SERVE], ids=["run", "serve"])
def test_killed(start: Start, code: str) -> None:
    """Even if the demo itself is killed, its server ends."""
    demo = start(code)
    deadline = time.monotonic() + 60
    while not demo.running() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert demo.running()
    demo.process.kill()
    demo.process.wait()
    while demo.running() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert demo.running() == []
