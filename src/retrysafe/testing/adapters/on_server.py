"""A store that needs a server: the suites of a process share one, and those that stop it have their own."""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import ClassVar, Generic, Protocol, TypeVar, cast

import pytest


class DatabaseServer(Protocol):
    """Of the servers in `retrysafe.testing`, what a backing needs."""

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def close(self) -> None: ...


S = TypeVar("S", bound=DatabaseServer)


class Program(Generic[S]):
    """How a server is started, and what to say where it is not installed."""

    def __init__(self, start: Callable[[], S], is_available: Callable[[], bool], missing: str) -> None:
        self.start = start
        self.is_available = is_available
        self.missing = missing


class OnServer(Generic[S]):
    """What the backings on servers have in common.  With `own` it shares its server with no other."""

    shared = True
    one_writer = False

    _standing: ClassVar[dict[object, tuple[DatabaseServer, int]]] = {}
    """The servers that run, and how many suites need each."""

    def __init__(self, title: str, program: Program[S], *, own: bool) -> None:
        self.title = title
        self._program = program
        self._whose: object = self if own else program

    @contextmanager
    def standing(self) -> Generator[None]:
        if not self._program.is_available():
            (pytest.fail if os.environ.get("CI") else pytest.skip)(self._program.missing)
        server, users = self._standing.get(self._whose) or (self._program.start(), 0)
        self._standing[self._whose] = server, users + 1
        try:
            yield
        finally:
            server, users = self._standing.pop(self._whose)
            if users > 1:
                self._standing[self._whose] = server, users - 1
            else:
                server.close()

    @property
    def server(self) -> S:
        return cast("S", self._standing[self._whose][0])

    @contextmanager
    def _killed(self) -> Generator[None]:
        """The machine lost its power, and is on again at the end."""
        self.server.kill()
        try:
            yield
        finally:
            self.server.start()
