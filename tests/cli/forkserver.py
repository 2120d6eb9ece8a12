"""Runs commands of `python -m retrysafe` in processes that are forked instead of started.

What takes most of a command's time, importing the libraries that draw on terminals, is done once per process
that runs tests.
"""

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Mapping, Sequence
from functools import cache

from tests.forkserver import Forked, ForkServer

# What every command imports, and nothing that looks at arguments, environment or terminal.  A command is what
# makes typer import the most.
_PREPARE = """
import psycopg, rich.console, rich.table, typer
import retrysafe.stores

def nothing(number: int = 0) -> None:
    pass

app = typer.Typer()
app.command()(nothing)
app([], standalone_mode=False)
"""


@cache
def forkserver(environment: tuple[tuple[str, str], ...]) -> ForkServer:
    """The only one of this process."""
    return ForkServer(_PREPARE, dict(environment))


def run(
    server: ForkServer,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    stdin: bytes,
    patience: float,
) -> tuple[int, bytes, bytes]:
    """Exit code, standard output and standard error of a command."""
    (in_read, in_write), (out_read, out_write), (err_read, err_write) = (os.pipe() for _ in range(3))
    command = ["-m", "retrysafe", *arguments]
    process = server.start(command, (in_read, out_write, err_write), environment)
    for number in (in_read, out_write, err_write):
        os.close(number)
    with contextlib.suppress(BrokenPipeError), open(in_write, "wb") as pipe:
        pipe.write(stdin)
    written = _read(process, [out_read, err_read], time.monotonic() + patience)
    return process.wait(patience), written[out_read], written[err_read]


def _read(process: Forked, pipes: list[int], until: float) -> dict[int, bytes]:
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
                os.killpg(process.pid, signal.SIGKILL)
                raise AssertionError(f"the command does not end; it has written {written}")
    return written
