"""A limit for a whole attempt of a client that blocks.

httpx limits each read, and a receiver that sends one byte, or one `102 Processing`, within each of these
limits would hold an attempt for ever, past the horizon of its callback.  A thread that waits in a read is not
interrupted by anything but its socket: when the time has passed, that is shut down, and the read fails.
"""

import socket
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from threading import Timer


class Deadline:
    """For the attempts of one client, one after the other.

    A connection that other code has opened with the same client is not known here before its first response:
    an attempt on one ends with the limits of its reads alone.
    """

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self.passed = False
        """Whether the attempt was ended by it."""

    def trace(self, _name: str, info: Mapping[str, object]) -> None:
        """What httpcore calls at each step: a new connection is the value of those that make one."""
        self.watch(info.get("return_value"))

    def watch(self, stream: object) -> None:
        """The connection that this network stream of httpcore's is on; the last one is the one in use."""
        extra: Callable[[str], object] | None = getattr(stream, "get_extra_info", None)
        found = None if extra is None else extra("socket")
        if isinstance(found, socket.socket):
            self._socket = found

    @contextmanager
    def within(self, seconds: float) -> Generator[None]:
        self.passed = False
        timer = Timer(seconds, self._pass)
        timer.daemon = True
        with suppress(RuntimeError):  # an interpreter that is ending starts no threads: `atexit`
            timer.start()
        try:
            yield
        finally:
            timer.cancel()
            if timer.ident is not None:
                timer.join()

    def _pass(self) -> None:
        self.passed = True
        if self._socket is not None:
            with suppress(OSError):  # it was closed already
                # Not the method of `ssl.SSLSocket`, which takes away what the other thread reads with.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
