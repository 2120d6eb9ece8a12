"""What goes out to the server: heads as PEP 3333 has them, and bodies after which something still comes."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from http import HTTPStatus
from wsgiref.types import StartResponse
from wsgiref.util import is_hop_by_hop

from retrysafe._core.headers import is_name
from retrysafe._core.model import Header, Response

Write = Callable[[bytes], object]

_UNFIT = re.compile(r"[^\t\x20-\x7e\x80-\xff]")  # RFC 9110 section 5.5, and RFC 9112 section 4


def checked(status: str, sent: Sequence[tuple[str, str]]) -> tuple[int, list[Header]]:
    """A head as the application gave it.  What no server would take is refused, as a server would."""
    if not (status[:3].isascii() and status[:3].isdigit() and status[3:4] in ("", " ")):
        raise ValueError(f"the application responded {status!r}: expected a status such as '200 OK'")
    for name, value in sent:
        # By its name only: the value may be a secret.
        if not is_name(name.encode("utf-8", "surrogatepass")) or _UNFIT.search(value):
            raise ValueError(f"the header {name!r} has a character that no header may have")
    if _UNFIT.search(status):
        raise ValueError(f"the status {status!r} has a character that no header may have")
    return int(status[:3]), [(name.encode("latin-1"), value.encode("latin-1")) for name, value in sent]


def start(start_response: StartResponse, head: Response, line: str = "") -> Write:
    """Give the head to the server; in the application's own words, if it was the application's."""
    if not line.startswith(str(head.status)):
        line = f"{head.status} {_phrase(head.status)}"
    fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers]
    # What is said about the connection is the server's to say: some servers ignore it, some do not take it.
    return start_response(line, [field for field in fields if not is_hop_by_hop(field[0])])


def send(start_response: StartResponse, response: Response, line: str = "") -> list[bytes]:
    start(start_response, response, line)
    return [response.body] if response.body else []


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"  # one that the application made up; the words are for people only


def and_then_raise(body: Iterable[bytes], error: Exception) -> Iterator[bytes]:
    """The response, and then the handler's exception for the application's log."""
    yield from body
    raise error


class AndThenClose:
    """A response after which the application goes on."""

    def __init__(self, body: Iterable[bytes], close: Callable[[], None]) -> None:
        self._body = body
        self.close = close

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)
