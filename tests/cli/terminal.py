"""The command line as people meet it: a process, with a real terminal or with none."""

import fcntl
import os
import platform
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from retrysafe.testing.adapters.server import Process
from tests.cli import forkserver
from tests.forkserver import ForkServer

COMMAND = (sys.executable, "-m", "retrysafe")

LONG = bool(os.environ.get("RETRYSAFE_LONG"))

# Everything that rich may send: colours and weights, and for a progress bar cursor moves and line erasure.
OURS = re.compile(rb"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[0-9]*[AK]|\x1b\[2K")
COLOURS = re.compile(rb"\x1b\[(?:[0-9]+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9]+)*m")

_PATIENCE = 60.0
"""Seconds until a process that says nothing more is taken for stuck.  A loaded machine is the normal case."""


def environment(store: str | None, **more: str) -> dict[str, str]:
    """No settings of this machine, except where its programs are."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    base = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", **inherited}
    return {**base, **({"RETRYSAFE_STORE": store} if store else {}), **more}


def the_forkserver() -> ForkServer:
    return forkserver.forkserver(tuple(environment(None).items()))


class Run(NamedTuple):
    code: int
    out: str
    err: str


def run(
    *arguments: str,
    store: str | None = None,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    command: Sequence[str] = COMMAND,
) -> Run:
    """Without a terminal: three pipes.

    A process that is forked, unless the environment or the program is another one: libraries read the
    environment when they are imported.
    """
    if env is None and command is COMMAND:
        code, out, err = forkserver.run(the_forkserver(), arguments, environment(store), stdin, _PATIENCE)
        return Run(code, out.decode(), err.decode())
    done = subprocess.run(
        [*command, *arguments],
        input=stdin,
        capture_output=True,
        env={**environment(store), **(env or {})},
        timeout=_PATIENCE,
    )
    return Run(done.returncode, done.stdout.decode(), done.stderr.decode())


_WAITING_CALLS = frozenset({"7", "23", "270", "271"})
"""poll, select, pselect6 and ppoll on x86-64."""


def _as_a_shell_does() -> None:
    """A terminal of its own, so that Ctrl-C typed there is a signal here; and one that is not ignored, as it
    is where the tests themselves run in the background."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Screen:
    """A process that has a terminal of its own for everything it reads and writes."""

    def __init__(
        self,
        *arguments: str,
        store: str | None = None,
        columns: int = 80,
        lines: int = 24,
        env: Mapping[str, str] | None = None,
        command: Sequence[str] = COMMAND,
        piped_stdout: bool = False,
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._piped: int | None = None
        stdout = theirs
        if piped_stdout:
            self._piped, stdout = os.pipe()
        self._process = self._start([*command, *arguments], (theirs, stdout, theirs), environment(store), env)
        for number in {theirs, stdout}:
            os.close(number)
        self.raw = b""

    def _start(
        self,
        command: Sequence[str],
        streams: tuple[int, int, int],
        base: Mapping[str, str],
        env: Mapping[str, str] | None,
    ) -> Process:
        """Forked or started, as by `run`; started in `make test-all`, where there is time."""
        if not LONG and env is None and tuple(command[: len(COMMAND)]) == COMMAND:
            return the_forkserver().start(command[1:], streams, base)
        stdin, stdout, stderr = streams
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={**base, **(env or {})},
            start_new_session=True,
            preexec_fn=_as_a_shell_does,
        )

    def expect(self, text: str) -> None:
        """Wait until this stands on the screen."""
        until = time.monotonic() + _PATIENCE
        while text not in self.text:
            assert time.monotonic() < until, f"{text!r} never came: {self.text}"
            assert self._read(until), f"it ended before {text!r} came: {self.text}"

    def wait_until_it_reads(self) -> None:
        """A question stands on the screen a moment before Python waits for the reply, and an interrupt in
        that moment is obeyed only with the next key.  No person is that quick, but a test is."""
        if not os.path.exists("/proc"):  # not Linux: then it is a guess
            time.sleep(0.5)
            return
        until = time.monotonic() + _PATIENCE
        while (waits := self._waits_for_a_key()) is False:
            assert time.monotonic() < until, "it does not wait for a key"
            time.sleep(0.02)
        if waits:
            return
        before = ""
        while not (before.startswith("S") and before == self._activity()):
            assert time.monotonic() < until, f"it is not at rest: {before}"
            before = self._activity()
            time.sleep(0.2)

    def _waits_for_a_key(self) -> bool | None:
        """Whether it is in a system call that waits for standard input; `None` if that is not known."""
        try:
            with open(f"/proc/{self._process.pid}/syscall") as file:
                call = file.read().split()
        except OSError:
            return None
        if platform.machine() != "x86_64":
            return None  # the numbers of calls are others
        return call[:2] == ["0", "0x0"] or call[0] in _WAITING_CALLS

    def _activity(self) -> str:
        """Its state, and the processor time that it has had."""
        with open(f"/proc/{self._process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return f"{fields[0]} {fields[11]} {fields[12]}"

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def interrupt(self) -> None:
        """What a terminal does at Ctrl-C."""
        self.type("\x03")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """Let it come to its end, and give its exit code."""
        until = time.monotonic() + _PATIENCE
        try:
            while self._read(until):
                assert time.monotonic() < until, f"it does not end: {self.text}"
            self.piped = b""
            if self._piped is not None:
                with open(self._piped, "rb", closefd=False) as pipe:
                    self.piped = pipe.read()
            return self._process.wait(_PATIENCE)
        except BaseException:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            raise
        finally:
            for number in (self._ours, self._piped):
                if number is not None:
                    os.close(number)

    @property
    def text(self) -> str:
        """What was written without our own colours; anything else a terminal acts upon is still there."""
        return OURS.sub(b"", self.raw).decode().replace("\r\n", "\n")

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    def _read(self, until: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return True
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # EIO: the other end was closed
            return False
        self.raw += data
        return bool(data)


def shown(
    *arguments: str, store: str | None = None, columns: int = 80, env: Mapping[str, str] | None = None
) -> Screen:
    """Run a command that asks nothing on a terminal, to its end; it must be fine."""
    screen = Screen(*arguments, store=store, columns=columns, lines=24 if columns < 100 else 40, env=env)
    code = screen.end()
    assert code == 0, (code, screen.text)
    return screen
