"""The body of a request, copied while the application reads it.

It stands in the place of `request._stream`.  What reads before the claim, such as the CSRF check or an
authentication that is in the form, leaves a copy behind for the fingerprint; and what the claim has read
before the view, the view is given from the copy.  `request.body` keeps its own limit, and uploads of any size
are spooled to disk.
"""

from io import BytesIO
from mmap import mmap
from typing import Any, Protocol, cast

from django.http import HttpRequest

from retrysafe._core.steps import Gone, TooLarge
from retrysafe._http.body import EMPTY, Spool, Whole
from retrysafe.errors import ConfigurationError, StoreUnavailable

_PIECE = 64 * 1024
"""How much of a body is asked for at a time."""

_STREAM = "_retrysafe_stream"


class _Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...
    def readline(self, size: int = -1, /) -> bytes: ...


class CopiedStream:
    def __init__(self, source: _Readable, expected: int | None) -> None:
        self._source = source
        self._expected = expected
        """Bytes that were announced; `None`: whatever there is, because the server has read all of it."""
        self._given = 0
        self._copy: Spool | None = Spool()
        """`None`: it is larger than any claim may have it, or the disk is full."""
        self._trouble: StoreUnavailable | None = None
        self._ended = False
        self._whole: bytes | mmap | None = None
        self.limit: int | None = None
        """How much is copied at most."""

    # --- what Django reads

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = -1 if size is None else size
        piece = self._from_copy(wanted) if self._whole is not None else self._from_source(wanted)
        self._given += len(piece)
        return piece

    def readline(self, size: int | None = -1, /) -> bytes:
        wanted = -1 if size is None else size
        if self._whole is None:
            piece = self._note(self._source.readline(wanted))
        else:
            end = self._whole.find(b"\n", self._given) + 1 or len(self._whole)
            piece = self._whole[self._given : end if wanted < 0 else min(end, self._given + wanted)]
        self._given += len(piece)
        return piece

    def __iter__(self) -> Any:  # noqa: ANN401 - an iterator of lines
        return iter(self.readline, b"")

    def seekable(self) -> bool:
        """No: what was read may only be in the copy."""
        return False

    def close(self) -> None:
        """Django closes it when `request.body` was read; the copy is still needed."""

    def _from_copy(self, size: int) -> bytes:
        assert self._whole is not None
        return self._whole[self._given : None if size < 0 else self._given + size]

    def _from_source(self, size: int) -> bytes:
        return self._note(self._source.read(size))

    def _note(self, piece: bytes) -> bytes:
        if not piece:
            self._ended = True
        elif self._copy is not None:
            try:
                self._copy.add(piece)
            except StoreUnavailable as trouble:  # the disk is full, which only a claim has to know
                self._trouble = trouble
                self._drop()
            else:
                if self.limit is not None and self._copy.size > self.limit:
                    self._drop()
        return piece

    def _drop(self) -> None:
        if self._copy is not None:
            self._copy.close()
        self._copy = None

    # --- what the claim reads

    def whole(self, limit: int) -> Spool | Whole | TooLarge | Gone:
        """All of it, as a copy from which the rest is read from now on."""
        try:
            while (
                self._copy is not None
                and not self._ended
                and self._copy.size <= limit
                and self._copy.size != self._expected
            ):
                self._note(self._source.read(min(_PIECE, limit - self._copy.size + 1)))
        except OSError:  # how servers say that a body broke off
            return Gone()
        if self._trouble is not None:
            raise self._trouble
        copy = self._copy
        if copy is None or copy.size > limit:
            return TooLarge(limit)
        if self._expected is not None and copy.size < self._expected:
            return Gone()
        self._whole = copy.view()
        if copy.on_disk:
            return copy
        return Whole(bytes(self._whole), copy.size)


def copy_stream(request: HttpRequest, limit: int | None) -> None:
    """Have a request copy its body while it is read."""
    own: Any = request
    if _STREAM not in vars(own) and not own._read_started:
        _put(own).limit = limit


def _put(request: Any) -> CopiedStream:  # noqa: ANN401 - what is used of it has no types
    # Under ASGI, Django has read the whole body before it makes a request of it.
    expected = None if hasattr(request, "scope") else _announced(request)
    stream = CopiedStream(request._stream if hasattr(request, "_stream") else BytesIO(), expected)
    vars(request)[_STREAM] = stream
    request._stream = stream
    return stream


def _announced(request: HttpRequest) -> int:
    try:
        return max(int(request.META.get("CONTENT_LENGTH") or 0), 0)
    except ValueError:
        return 0  # as Django has it


def body_of(request: HttpRequest, limit: int) -> Spool | Whole | TooLarge | Gone:
    """The whole body of a request, which the application can still read."""
    own: Any = request
    stream = cast("CopiedStream | None", vars(request).get(_STREAM))
    if stream is None and hasattr(own, "_body"):
        body: bytes = own._body
        return TooLarge(limit) if len(body) > limit else Whole(body, len(body)) if body else EMPTY
    if stream is None:
        if own._read_started:
            raise ConfigurationError(
                f"{request.method} {request.path}: the body was read before the key was claimed, and there "
                "is no copy of it: add 'retrysafe.django.Middleware' to MIDDLEWARE, above what reads it"
            )
        stream = _put(own)
    return stream.whole(limit)
