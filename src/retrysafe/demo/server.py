"""The payments API as a program: a server of the standard library that counts what arrives.

    python -m retrysafe.demo.server FOLDER [--port N] [--lease SECONDS] [--hold before:ORDER]…

In FOLDER are the keys (`keys.db`), the card network's books (`ledger.jsonl`) and a count of what happened
(`journal`).  It ends when its standard input does.
"""

import sys
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from retrysafe import Guard
from retrysafe.demo import api
from retrysafe.demo.ledger import CardNetwork, Ledger


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = False  # what runs when the server is asked to end comes to its end
    request_queue_size = 128  # a crowd must not be turned away by the kernel

    def server_bind(self) -> None:
        """As it was, but without asking a name server who we are, which can take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]
        self.setup_environ()


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """The journal says it all."""


class Journal:
    """One line per request that arrives and per verdict of the guard; it survives the process."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def note(self, word: str) -> None:
        self._file.write(word.encode() + b"\n")

    def counting(self, app: WSGIApplication) -> WSGIApplication:
        def counted(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            if environ["REQUEST_METHOD"] == "POST":
                self.note("arrived")
            return app(environ, start_response)

        return counted


def main(build: Callable[[CardNetwork, Guard], WSGIApplication] = api.build) -> None:
    options = _parse()
    folder: Path = options.folder
    never = threading.Event()

    def meanwhile(order: str, moment: str) -> None:
        if f"{moment}:{order}" in options.hold:
            never.wait()

    journal = Journal(folder / "journal")
    guard = api.make_guard(
        f"sqlite:///{folder / 'keys.db'}",
        lease=options.lease,
        on_event=lambda event: journal.note(event.verdict),
    )
    app = build(CardNetwork(Ledger(folder / "ledger.jsonl"), meanwhile), guard)
    with Server(("127.0.0.1", options.port), Quiet) as server:
        server.set_app(journal.counting(app))
        threading.Thread(target=_end_with_parent, args=[server], daemon=True).start()
        sys.stdout.write(f"ready {server.server_port}\n")
        sys.stdout.flush()
        server.serve_forever(poll_interval=0.05)
    guard.drain(grace=1.0)
    guard.close()


def _end_with_parent(server: Server) -> None:
    """Whoever started us holds the other end of our standard input: that closes when they end, however."""
    sys.stdin.buffer.read()
    server.shutdown()


def _parse() -> Namespace:
    parser = ArgumentParser(prog="python -m retrysafe.demo.server", description="A small payments API.")
    parser.add_argument("folder", type=Path, help="where the keys, the ledger and the journal are")
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--lease", type=float, default=30.0, help="seconds until a dead server is noticed")
    parser.add_argument(
        "--hold", action="append", default=[], metavar="WHEN:ORDER", help="before or after its charge"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
