"""Python programs in processes that are forked instead of started, for tests that start hundreds of them.

    server = ForkServer("import fastapi, uvicorn")
    process = server.start(["-m", "service", "--port=0"], (stdin, stdout, stderr))

A program is a process of its own all the same: with its own arguments, environment, folder and streams, in a
session of its own, and it ends as it would end.  But what takes most of its time, importing, is done once,
before the fork.  What an import finds out about its environment, it finds out there: programs that are to see
another one are started, not forked.

This file is also the program that is forked; so it imports nothing but the standard library.
"""

import atexit
import contextlib
import fcntl
import gc
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import traceback
import weakref
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

_LIMIT = 1 << 18
"""Bytes of a request: arguments and an environment, which Linux takes in one message up to this size."""


class Forked:
    """A process that was forked.

    Its number is its own as long as this object is there, even after its end.  It is killed with its group
    when this object is gone.
    """

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self._status = status
        self._ended_with: int | None = None
        weakref.finalize(self, os.close, status)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, as `subprocess` has it: a signal is negative."""
        if self._ended_with is None:
            readable, _, _ = select.select([self._status], [], [], timeout)
            if not readable:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            self._ended_with = int(os.read(self._status, 100))
        return self._ended_with

    def send_signal(self, sig: int, /) -> None:
        os.kill(self.pid, sig)


class ForkServer:
    """The process that is forked.  It ends when this one does, and all that were forked end with it.

    `prepare` is the code that it runs first: imports.
    """

    def __init__(self, prepare: str, environment: Mapping[str, str] | None = None) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _LIMIT)
        with theirs:
            # Not with the folder of this file among those where modules are looked for.
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno()), prepare],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._end = weakref.finalize(self, _end, self._requests, self._process)

    def start(
        self,
        program: Sequence[str],
        streams: tuple[int, int, int],
        environment: Mapping[str, str] | None = None,
    ) -> Forked:
        """Run `program`, the arguments of an interpreter: `-m` and a module or a file, and what they take.

        `streams` are the descriptors of its standard input, output and error.
        """
        asked = Program(list(program), os.getcwd(), dict(os.environ if environment is None else environment))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            try:
                with theirs:
                    request = json.dumps(asked).encode()
                    socket.send_fds(self._requests, [request], [*streams, theirs.fileno()])
                pid = ours.recv(100)
            except OSError as error:
                raise self._has_ended() from error
            if not pid:
                raise self._has_ended()
            return Forked(int(pid), ours.detach())

    def _has_ended(self) -> RuntimeError:
        self.close()
        return RuntimeError(
            f"the process that is forked has ended with {self._process.returncode}: "
            "what it wrote to standard error says why"
        )

    def close(self) -> None:
        """End it, and all that were forked."""
        self._end()


def _end(requests: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    requests.close()
    process.wait()


class Program(NamedTuple):
    """What is to be run, and where."""

    arguments: list[str]
    folder: str
    environment: dict[str, str]


# --- the process that is forked


class _Parent:
    """Forks, and says how its children end.

    A child that has ended is kept, and so is its number, until no client asks for it any more.
    """

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._children: dict[socket.socket, int] = {}
        """By the socket to their client."""
        self._ended: set[int] = set()
        self._wakeup, ours = socket.socketpair()
        self._wakeup.setblocking(False)
        ours.setblocking(False)
        self._ours = ours
        signal.signal(signal.SIGCHLD, _ignore)
        signal.set_wakeup_fd(ours.fileno())

    def run(self) -> Program | None:
        """Returns in every child with its program, and here when there are no more."""
        while True:
            readable, _, _ = select.select([self._requests, self._wakeup, *self._children], [], [])
            if self._wakeup in readable:
                self._wakeup.recv(4096)
                self._report()
            for client in [one for one in self._children if one in readable]:
                self._forget(client)
            if self._requests in readable:
                data, given, _, _ = socket.recv_fds(self._requests, _LIMIT, 4)
                if not data:
                    self._kill()
                    return None
                if self._fork(given):
                    return Program(*json.loads(data))

    def _fork(self, given: list[int]) -> bool:
        """Whether this is the child."""
        *streams, reply = given
        client = socket.socket(fileno=reply)
        child = os.fork()
        if child == 0:
            self._become(streams, client)
            return True
        for number in streams:
            os.close(number)
        self._children[client] = child
        return False

    def _become(self, streams: list[int], client: socket.socket) -> None:
        """Nothing of the parent's is left, but what it has imported."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        if os.isatty(0):
            _take_terminal()
        # Only now: the client may kill its group as soon as it knows its number.
        client.send(str(os.getpid()).encode())
        for one in (client, self._requests, self._wakeup, self._ours, *self._children):
            one.close()

    def _report(self) -> None:
        for client, child in self._children.items():
            if child in self._ended:
                continue
            ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                self._ended.add(child)
                code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
                with contextlib.suppress(BrokenPipeError):  # the client has gone meanwhile
                    client.send(str(code).encode())

    def _forget(self, client: socket.socket) -> None:
        child = self._children.pop(client)
        client.close()
        for kill in (os.kill, os.killpg):  # one may be about to have a group
            with contextlib.suppress(ProcessLookupError):
                kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        self._ended.discard(child)

    def _kill(self) -> None:
        for client in list(self._children):
            self._forget(client)


def _take_terminal() -> None:
    """As a shell does: Ctrl-C typed there is a signal here; and one that is not ignored, as it is where the
    tests themselves run in the background."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _ignore(_signal: int, _frame: object) -> None:
    """A handler, so that the signal is not ignored, and its arrival is written to the socket."""


def _run(program: Program) -> NoReturn:
    """What the interpreter does around a program."""
    # Made anew: the old ones remember whether they could be rewound.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        old = getattr(sys, name)
        raw = open(old.fileno(), f"{mode}b")  # noqa: SIM115 - to the end
        new = io.TextIOWrapper(raw, old.encoding, old.errors, line_buffering=old.line_buffering)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    os.chdir(program.folder)
    os.environ.clear()
    os.environ.update(program.environment)
    code = 0
    try:
        _run_as_main(program.arguments)
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            sys.stderr.write(f"{end.code}\n")
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - whatever it is, it is written and the process ends
        traceback.print_exc()
        code = 1
    # As it ends by itself, but for taking every module apart, of which nothing is seen outside.
    threading._shutdown()  # type: ignore[attr-defined]  # as `multiprocessing` does in its children
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = 120
    os._exit(code & 0xFF)


def _run_as_main(arguments: list[str]) -> None:
    if arguments[0] == "-m":
        module = arguments[1]
        sys.argv = [module, *arguments[2:]]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, os.path.dirname(os.path.abspath(arguments[0])))
        runpy.run_path(arguments[0], run_name="__main__")


def _main() -> None:
    requests, prepare = socket.socket(fileno=int(sys.argv[1])), sys.argv[2]
    exec(prepare, {"__name__": "prepare"})
    if threading.active_count() > 1:
        raise RuntimeError(f"a fork would lose the threads that were started: {threading.enumerate()}")
    # Else each child would copy what its collector looks through and never frees.
    gc.collect()
    gc.freeze()
    program = _Parent(requests).run()
    if program is not None:
        _run(program)


if __name__ == "__main__":
    _main()
