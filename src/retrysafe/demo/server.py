"""The payments API as a process that can be killed and restarted, and the program that runs in it.

    python -m retrysafe.demo.server FOLDER [--port N] [--lease SECONDS] [--hold before:ORDER]…

In FOLDER are the keys (`keys.db`), the card network's ledger (`ledger.jsonl`) and a count of what happened
(`journal`).  With `RETRYSAFE_STORE` in the environment the keys are there instead; an address may contain a
password, and arguments are in the list of processes.  The program ends when its standard input does.
"""

import os
import secrets
import select
import subprocess
import sys
import threading
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from types import TracebackType
from typing import IO
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from retrysafe import Guard, stores
from retrysafe.demo import api
from retrysafe.demo.ledger import CardNetwork, Ledger
from retrysafe.demo.signals import POLL_INTERVAL, raise_if_stopped

START_TIMEOUT = 15.0
"""Seconds that a start may take.  It takes a third of one; a machine may be busy."""

STORE = "RETRYSAFE_STORE"

PROGRAM = ("-m", "retrysafe.demo.server")
"""What Python runs.  The demo's own tests put a server in its place that is broken on purpose."""


class ServerFailed(Exception):
    """The server did not start."""


class Server:
    """Runs as long as the `with` does; on the same port after a restart.

    With a `store` that others use too, `shop` keeps its keys apart from all others there.
    """

    def __init__(
        self,
        folder: Path,
        *options: str,
        lease: float,
        store: str | None = None,
        shop: str | None = None,
        program: tuple[str, ...] = PROGRAM,
    ) -> None:
        self.folder = folder
        self.store = store or _in_folder(folder)
        self.shop = shop
        self.port = 0
        self._log = folder / "server.log"
        self._lease = lease
        self._program = program
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.folder / "ledger.jsonl")

    def counts(self) -> Counter[str]:
        """How many requests arrived, and how many ended with which verdict."""
        return Counter((self.folder / "journal").read_text().split())

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def ended(self, within: float) -> bool:
        """Whether it ends within so many seconds."""
        assert self._process is not None
        try:
            self._process.wait(within)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL: it cannot write anything any more."""
        self._end(grace=0.0)

    def restart(self) -> None:
        """Start it again, without the options of the first time."""
        self._end(grace=0.0)
        self._start()

    def __enter__(self) -> "Server":
        try:
            self._start(*self._options)
        except BaseException:  # Ctrl-C too: no process may be left running
            self._end(grace=0.0)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(grace=3.0 if kind is None else 0.0)

    def _start(self, *options: str) -> None:
        command = [sys.executable, *self._program, str(self.folder), f"--port={self.port}"]
        if self.shop is not None:
            command.append(f"--shop={self.shop}")
        with self._log.open("ab") as log:
            self._process = process = subprocess.Popen(  # noqa: S603 - arguments of our own making
                [*command, f"--lease={self._lease}", *options],
                env={**os.environ, STORE: self.store},
                # It ends when this pipe closes: also if this process is killed.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # Ctrl-C in the terminal is for this process, which then ends the server.
                start_new_session=True,
            )
        assert process.stdout is not None
        line = process.stdout.readline().decode() if _readable(process.stdout, START_TIMEOUT) else ""
        if not line.startswith("ready "):
            self._end(grace=0.0)
            raise ServerFailed(
                f"the payments API was not ready within {START_TIMEOUT:.0f} s, and wrote {line!r}; its log:\n"
                f"{self._log.read_text(errors='replace').strip() or '(empty)'}"
            )
        self.port = int(line.removeprefix("ready "))

    def _end(self, grace: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()  # the program ends on it
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def new_shop(store: str) -> str:
    """A name that no other shop in this store has.  A store that cannot be used is reported here."""
    with closing(stores.open(store)) as opened:
        opened.look(os.urandom(32))
    return f"demo-{secrets.token_hex(4)}"


def _in_folder(folder: Path) -> str:
    return f"sqlite:///{folder / 'keys.db'}"


def _readable(pipe: IO[bytes], within: float) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if select.select([pipe], [], [], POLL_INTERVAL)[0]:
            return True
        raise_if_stopped()
    return False


class ThreadingWSGIServer(ThreadingMixIn, WSGIServer):
    daemon_threads = False  # a request that runs when the server ends is finished
    request_queue_size = 128  # the kernel must not refuse a burst of connections

    def server_bind(self) -> None:
        """Without a look-up of the machine's name, which can take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]
        self.setup_environ()


class QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """The journal has what is needed."""


class Journal:
    """One line per request that arrives and per verdict of the guard; it survives the process."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def add(self, word: str) -> None:
        self._file.write(word.encode() + b"\n")

    def count(self, app: WSGIApplication) -> WSGIApplication:
        def counted(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            if environ["REQUEST_METHOD"] == "POST":
                self.add("arrived")
            return app(environ, start_response)

        return counted


def main(make_api: Callable[[CardNetwork, Guard], WSGIApplication] = api.make_api) -> None:
    options = _parse()
    folder: Path = options.folder
    never = threading.Event()

    def hold(order: str, moment: str) -> None:
        if f"{moment}:{order}" in options.hold:
            never.wait()

    journal = Journal(folder / "journal")
    guard = api.make_guard(
        os.environ.get(STORE) or _in_folder(folder),
        shop=options.shop,
        lease=options.lease,
        on_event=lambda event: journal.add(event.verdict),
    )
    app = make_api(CardNetwork(Ledger(folder / "ledger.jsonl"), hold), guard)
    with ThreadingWSGIServer(("127.0.0.1", options.port), QuietHandler) as server:
        server.set_app(journal.count(app))
        threading.Thread(target=_end_with_parent, args=[server], daemon=True).start()
        sys.stdout.write(f"ready {server.server_port}\n")
        sys.stdout.flush()
        server.serve_forever(poll_interval=0.05)
    guard.drain(grace=1.0)
    guard.close()


def _end_with_parent(server: ThreadingWSGIServer) -> None:
    """The parent holds the other end of standard input: it closes when the parent ends, even by SIGKILL."""
    sys.stdin.buffer.read()
    server.shutdown()


def _parse() -> Namespace:
    parser = ArgumentParser(prog="python -m retrysafe.demo.server", description="A small payments API.")
    parser.add_argument("folder", type=Path, help="where the keys, the ledger and the journal are")
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--shop", metavar="NAME", help="a part of the scope of all keys")
    parser.add_argument("--lease", type=float, default=30.0, help="seconds until a dead server is noticed")
    parser.add_argument(
        "--hold", action="append", default=[], metavar="WHEN:ORDER", help="before or after its charge"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
