"""Between a WSGI environ (PEP 3333) and a request: what arrived, and what the application is given of it.

Text in an environ is *bytes as latin-1*: each character stands for one byte that came over the wire.
"""

import io
from functools import lru_cache
from mmap import mmap
from typing import BinaryIO, NamedTuple, cast
from wsgiref.types import WSGIEnvironment
from wsgiref.util import FileWrapper

from retrysafe._core import headers
from retrysafe._core.model import Header, Request
from retrysafe._http.body import Spool, Whole
from retrysafe._http.exchange import Exchange

GUARDED = "retrysafe.guarded"
"""Marks a request that a guard outside of us has taken on already.  With a dot, as PEP 3333 asks of whatever
is not a string."""

_WAYS_AROUND = frozenset({"HTTP_ACCEPT_ENCODING", "gunicorn.socket", "werkzeug.socket", "wsgi.early_hints"})


class RemoteUser(NamedTuple):
    """Whom the server or an outer layer has authenticated (RFC 3875 section 4.1.11), for `scopes.user`."""

    identity: str


def variable(header: bytes) -> str:
    """The name by which a header goes in an environ."""
    return "HTTP_" + header.decode("ascii").upper().replace("-", "_")


def decoded(text: str) -> str:
    """A path as its client meant it.  What is not UTF-8 is written out: two paths must not become one."""
    return text if text.isascii() else _bytes(text).decode("utf-8", "backslashreplace")


def translate(environ: WSGIEnvironment) -> Request:
    root: str = environ.get("SCRIPT_NAME", "")
    user: str | None = environ.get("REMOTE_USER")
    return Request(
        environ["REQUEST_METHOD"],
        decoded(root + environ.get("PATH_INFO", "")),
        _bytes(environ.get("QUERY_STRING", "")),
        _headers(environ),
        environ["wsgi.url_scheme"],
        RemoteUser(user) if user else None,
        environ,
        decoded(root),
    )


@lru_cache(maxsize=256)  # most clients send the same few
def _header(name: str) -> bytes:
    return name[5:].replace("_", "-").lower().encode("ascii", "backslashreplace")


def _headers(environ: WSGIEnvironment) -> list[Header]:
    found = [
        (_header(name), value.encode("latin-1", "backslashreplace"))  # as `_bytes`, without a call for each
        for name, value in environ.items()
        if name.startswith("HTTP_") and name not in ("HTTP_CONTENT_TYPE", "HTTP_CONTENT_LENGTH")
    ]
    for name, header in (("CONTENT_TYPE", b"content-type"), ("CONTENT_LENGTH", b"content-length")):
        value = environ.get(name)
        if value:  # RFC 3875 section 4.1.2: empty is the same as absent
            found.append((header, _bytes(value)))
    return found


def _bytes(text: str) -> bytes:
    # Whoever does not keep to bytes-as-latin-1 must not make two different things one either.
    return text.encode("latin-1", "backslashreplace")


class Incoming:
    """The body as the server has it: read no further than it goes."""

    broken = False
    """It ended before its announced length, or with an error: its client is gone."""

    def __init__(self, environ: WSGIEnvironment) -> None:
        self._environ = environ
        self._left = headers.length(_bytes(environ.get("CONTENT_LENGTH") or ""))
        """How many bytes there are to read.  `None`: all there is, the server knows where it ends."""
        if self._left is None and not environ.get("wsgi.input_terminated"):
            self._left = 0  # to read on would mean to wait for a client that has nothing more to say
        self.ended = self._left == 0

    def read(self, size: int) -> bytes:
        """Up to so many bytes; none at its end."""
        if self.ended:
            return b""
        left = self._left
        try:
            piece: bytes = self._environ["wsgi.input"].read(size if left is None else min(size, left))
        except Exception:
            # Noted, because it may not be said again: gunicorn gives what there is of a chunked body then.
            self.broken = True
            raise
        if left is not None:
            self._left = left - len(piece)
        if not piece:
            self.broken = left is not None
        self.ended = not piece or self._left == 0
        return piece


def pass_back(inner: WSGIEnvironment, given: set[str], outer: WSGIEnvironment) -> None:
    """Frameworks leave what they found (a session, a route) in the environ, for those outside."""
    for name in inner.keys() - given:
        outer[name] = inner[name]


def inner(environ: WSGIEnvironment, exchange: Exchange) -> WSGIEnvironment:
    """The environ for the application, with the body that was read, and its length."""
    found = around(environ, exchange)
    found[GUARDED] = True
    found["wsgi.input"] = _stream(exchange.body)
    found["wsgi.input_terminated"] = True
    if exchange.body.size or environ.get("CONTENT_LENGTH"):
        found["CONTENT_LENGTH"] = str(exchange.body.size)
    if environ.get("HTTP_TRANSFER_ENCODING", "").strip().lower() == "chunked":
        del found["HTTP_TRANSFER_ENCODING"]  # the server has undone it; anything else it has left
    return found


def around(environ: WSGIEnvironment, exchange: Exchange) -> WSGIEnvironment:
    """An environ with nothing in it that would lead the response past us.

    No `Accept-Encoding`: a compressing middleware inside would have us keep compressed bytes for clients that
    may not take them.  No socket, no early hints, and no file wrapper by which the server would send a file
    itself: a plain one is there for those who use it unasked.  And our request id, so that the application's
    log and ours speak of the same request.
    """
    found = {name: value for name, value in environ.items() if name not in _WAYS_AROUND}
    if "wsgi.file_wrapper" in environ:
        found["wsgi.file_wrapper"] = FileWrapper
    found[variable(exchange.rules.names.request_id)] = exchange.request_id
    return found


def _stream(body: Spool | Whole) -> BinaryIO:
    view = body.view()
    return io.BytesIO(view) if isinstance(view, bytes) else cast("BinaryIO", io.BufferedReader(_Mapped(view)))


class _Mapped(io.RawIOBase):
    """A body on disk, to be read from its beginning."""

    def __init__(self, view: mmap) -> None:
        self._view = view
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]  # what a reader passes
        piece = self._view[self._position : self._position + len(buffer)]
        buffer[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)
