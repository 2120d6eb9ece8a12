"""A service that callbacks are sent to: a real server, which replies as a test says and counts requests."""

import contextlib
import threading
from collections.abc import Callable, Generator, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, NamedTuple

PATIENCE = 30.0
"""Seconds: what a test waits for takes milliseconds, on a machine that has nothing else to do."""


class Request(NamedTuple):
    path: str
    headers: dict[str, str]
    """Their names in lower case."""
    body: bytes


class Reply(NamedTuple):
    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = {}  # noqa: RUF012 - it is not changed


class Raw(NamedTuple):
    """Bytes that need not be a response."""

    chunks: Iterable[bytes]
    pause: float = 0.0
    """Seconds between two of them."""


Behaviour = Reply | Raw | Literal["drop", "hang", "cut"]
"""`drop`: close the connection without a response.  `hang`: respond only when the test ends.  `cut`: close it
within the body of a 200."""

Script = Callable[[int], Behaviour]
"""By the number of the request, counted from 1."""


class Receiver:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.over = threading.Event()
        self._changed = threading.Condition()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.001})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/callbacks"

    @property
    def bodies(self) -> list[bytes]:
        return [request.body for request in self.requests]

    def wait_for(self, count: int) -> None:
        """Until so many requests have arrived."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.requests) >= count, PATIENCE), self.requests

    def arrived(self, request: Request) -> Behaviour:
        with self._changed:
            self.requests.append(request)
            number = len(self.requests)
            self._changed.notify_all()
        return self.script(number)

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # with the default of 5, a connection may take a second

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A sender that was killed is no error of the server's."""


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        assert isinstance(self.server, _Server)
        receiver = self.server.receiver
        behaviour = receiver.arrived(Request(self.path, headers, body))
        self.close_connection = True
        match behaviour:
            case "drop":
                return
            case "hang":
                receiver.over.wait(PATIENCE)
            case "cut":
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(b'{"message"')
            case Raw(chunks, pause):
                for chunk in chunks:
                    self.wfile.write(chunk)
                    if receiver.over.wait(pause):
                        break
            case Reply(status, content, more):
                self.send_response(status)
                for name, value in more.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


@contextlib.contextmanager
def receiving(script: Script) -> Generator[Receiver]:
    receiver = Receiver(script)
    try:
        yield receiver
    finally:
        receiver.close()


def after(failures: int, failure: Behaviour, success: Behaviour = Reply()) -> Script:  # noqa: B008 - it is a value
    """So many failures, and then a success each time."""
    return lambda number: failure if number <= failures else success


def always(behaviour: Behaviour) -> Script:
    return lambda _number: behaviour
