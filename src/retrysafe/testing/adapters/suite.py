"""What every section of the suite stands on: servers to ask, fresh names, and which line is covered.

Tests count effects under a label of their own and use keys of their own, so they are independent
of each other and may share a server, in any order.
"""

import itertools
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest

from retrysafe.testing.adapters.checklist import LINES
from retrysafe.testing.adapters.client import Reply
from retrysafe.testing.adapters.limits import NONE, Limits
from retrysafe.testing.adapters.server import Backing, Option, Server, Sqlite

LONG = bool(os.environ.get("RETRYSAFE_LONG"))
"""Whether there is time for what takes long."""

MAX_REQUEST, MAX_RESPONSE = 1000, 500
STRICT: Mapping[str, Option] = {"required": True, "max_request": MAX_REQUEST, "max_response": MAX_RESPONSE}
"""One server for all who need one that demands more or allows less than others."""

Test = TypeVar("Test", bound=Callable[..., object])


def covers(*lines: int) -> Callable[[Test], Test]:
    """Say which lines of the checklist a test proves."""
    unknown = [line for line in lines if line not in LINES]
    assert not unknown, f"the checklist has no line {unknown}"

    def mark(test: Test) -> Test:
        test.covers = lines  # type: ignore[attr-defined]  # functions take attributes
        return test

    return mark


def fresh(what: str = "k") -> str:
    """A name that is new: a key, a label, an id.  Long enough for a public key."""
    return f"{what}-{uuid.uuid4().hex}"


class Servers:
    """Starts servers, and shares those with the same options."""

    def __init__(self, framework: str, options: Mapping[str, Option], backing: Backing, folder: Path) -> None:
        self._framework = framework
        self._options = options
        self._backing = backing
        self._folder = folder
        self._kept: dict[tuple[tuple[str, Option], ...], Server] = {}
        self._alone: list[Server] = []
        self._names = itertools.count()

    def __call__(self, **options: Option) -> Server:
        """A server that tests share: do nothing to it that the next one would notice."""
        name = tuple(sorted(options.items()))
        if name not in self._kept:
            self._kept[name] = self._new(options)
        return self._kept[name]

    def alone(self, **options: Option) -> Server:
        """A server with a store of its own, to be killed or starved, until the end of the test."""
        server = self._new(options)
        self._alone.append(server)
        return server

    def beside(self, other: Server, **options: Option) -> Server:
        """A server that shares the store and the effects of another, until the end of the test."""
        server = self._start(other.store, other.effects_file, options)
        self._alone.append(server)
        return server

    def _new(self, options: dict[str, Option]) -> Server:
        folder = self._folder / str(next(self._names))
        folder.mkdir()
        return self._start(self._backing.new(folder), folder / "effects", options)

    def _start(self, store: str, effects: Path, options: dict[str, Option]) -> Server:
        return Server(self._framework, store, effects, **{"grace": 5, **self._options, **options})

    def end_those_alone(self) -> None:
        while self._alone:
            self._alone.pop().kill()

    def close(self) -> None:
        self.end_those_alone()
        for server in self._kept.values():
            server.kill()


class Suite:
    """What an adapter says about itself, and what its tests are given."""

    framework: ClassVar[str]
    workers: ClassVar[int] = 1
    options: ClassVar[Mapping[str, Option]] = {}
    """Of the reference application's command line, such as the server to run under."""
    backing: ClassVar[Backing] = Sqlite()
    tx: ClassVar[bool] = False
    """Whether its effects are in the store's database: transactional mode."""
    cannot: ClassVar[Limits] = NONE
    """What the server does not let the adapter do."""

    @pytest.fixture(scope="session")
    @classmethod
    def _standing(cls) -> Iterator[None]:
        """For the whole session: what several suites share is not started for each."""
        with cls.backing.standing():
            yield

    @pytest.fixture(scope="class")
    @classmethod
    def serve(cls, tmp_path_factory: pytest.TempPathFactory, _standing: None) -> Iterator[Servers]:
        """Starts the reference application with options of its command line."""
        folder = tmp_path_factory.mktemp("reference")
        options = {"workers": cls.workers, **cls.options}
        if cls.tx:
            options["tx"] = True
        servers = Servers(cls.framework, options, cls.backing, folder)
        yield servers
        servers.close()

    @pytest.fixture(autouse=True)
    def _end_servers_of_this_test(self, serve: Servers) -> Iterator[None]:
        yield
        serve.end_those_alone()

    @pytest.fixture(autouse=True)
    def _what_cannot_be(self, request: pytest.FixtureRequest) -> None:
        """What is declared impossible is expected to fail, and noticed if it does not."""
        reason = self.cannot.get(request.function.__name__)
        if reason is not None:
            # Most such tests wait in vain: that takes its time.
            request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True, run=LONG))

    @pytest.fixture
    def api(self, serve: Servers) -> Server:
        """The reference application with nothing but defaults."""
        return serve()

    @pytest.fixture
    def key(self) -> str:
        return fresh("key")

    @pytest.fixture
    def label(self) -> str:
        return fresh("label")


def assert_replay(first: Reply, second: Reply) -> None:
    """The second response is the first one once more, and says so."""
    assert second.essence == first.essence
    assert second.replayed
    assert not first.replayed


def assert_problem(reply: Reply, status: int, code: str) -> None:
    """A refusal of the layer, well formed (RFC 9457)."""
    assert reply.status == status, reply
    assert reply.header("Content-Type") == "application/problem+json"
    assert reply.header("Cache-Control") == "no-store"
    document = reply.document
    assert document["status"] == status
    assert document["code"] == code
    assert document["type"].startswith(("http://", "https://"))
    assert document["type"].endswith("#" + code)
    assert isinstance(document["title"], str)
    assert isinstance(document["detail"], str)
