"""Runs commands of `python -m retrysafe` in processes that are forked instead of started.

A command is a process of its own all the same, with its own arguments, environment, folder and pipes, and
ends as it would end.  But what takes most of its time, importing the libraries that draw on terminals, is
done once per process that runs tests, before the fork.
"""

import contextlib
import io
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import NoReturn


class ForkServer:
    """The process that is forked.  It ends when this one does, which holds the other end of its socket."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], stdin: bytes, patience: float
    ) -> tuple[int, bytes, bytes]:
        """Exit code, standard output and standard error."""
        asked = {"arguments": arguments, "environment": dict(environment), "folder": os.getcwd()}
        reply, theirs = socket.socketpair()
        (input_read, input_write), (out_read, out_write), (err_read, err_write) = (
            os.pipe() for _ in range(3)
        )
        given = [input_read, out_write, err_write, theirs.fileno()]
        socket.send_fds(self._requests, [json.dumps(asked).encode()], given)
        for number in given[:3]:
            os.close(number)
        theirs.close()
        with contextlib.suppress(BrokenPipeError), open(input_write, "wb") as pipe:
            pipe.write(stdin)
        written = self._read([out_read, err_read], time.monotonic() + patience)
        with reply:
            reply.settimeout(patience)
            code = int(reply.recv(100))
        return code, written[out_read], written[err_read]

    def _read(self, pipes: list[int], until: float) -> dict[int, bytes]:
        """All that comes, to the end of each."""
        written = dict.fromkeys(pipes, b"")
        with selectors.DefaultSelector() as selector:
            for pipe in pipes:
                selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select(1.0):
                    data = os.read(key.fd, 65536)
                    written[key.fd] += data
                    if not data:
                        selector.unregister(key.fd)
                        os.close(key.fd)
                if time.monotonic() > until:
                    os.killpg(self._process.pid, signal.SIGKILL)
                    raise AssertionError(f"the command does not end; it has written {written}")
        return written


@cache
def forkserver(environment: tuple[tuple[str, str], ...]) -> ForkServer:
    """The only one of this process."""
    return ForkServer(dict(environment))


# --- the other process


def _main(requests: socket.socket) -> None:
    _import()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        data, given, _, _ = socket.recv_fds(requests, 1 << 20, 4)
        if not data:
            return
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _serve(json.loads(data), given)
        for number in given:
            os.close(number)


def _import() -> None:
    """What every command imports, and nothing that looks at arguments, environment or terminal."""
    for module in ("psycopg", "rich.console", "rich.table", "retrysafe.stores"):
        import_module(module)
    import typer

    # A command is what makes typer import the most.
    app = typer.Typer()
    app.command()(_nothing)
    app([], standalone_mode=False)


def _nothing(number: int = 0) -> None:
    pass


def _serve(asked: dict[str, object], given: list[int]) -> NoReturn:
    """Run one command, and say how it ended, as `subprocess` does: signals are negative."""
    *standard, reply = given
    child = os.fork()
    if child == 0:
        os.close(reply)
        _run(asked, standard)
    for number in standard:
        os.close(number)
    _, status = os.waitpid(child, 0)
    os.write(reply, str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _run(asked: dict[str, object], standard: list[int]) -> NoReturn:
    """What the interpreter does around a program."""
    for number, pipe in enumerate(standard):
        os.dup2(pipe, number)
        os.close(pipe)
    # Made anew: the old ones remember whether they could be rewound.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        old = getattr(sys, name)
        raw = open(old.fileno(), f"{mode}b")  # noqa: SIM115 - to the end
        new = io.TextIOWrapper(raw, old.encoding, old.errors, line_buffering=old.line_buffering)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    arguments, environment = asked["arguments"], asked["environment"]
    assert isinstance(arguments, list)
    assert isinstance(environment, dict)
    os.chdir(str(asked["folder"]))
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["retrysafe", *arguments]
    code = 0
    try:
        runpy.run_module("retrysafe", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - whatever it is, it is written and the process ends
        traceback.print_exc()
        code = 1
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = 120
    os._exit(code)


if __name__ == "__main__":
    _main(socket.socket(fileno=int(sys.argv[1])))
