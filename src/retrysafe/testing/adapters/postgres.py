"""PostgreSQL behind the reference application: a server of one's own, a database for each application."""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Literal

import psycopg

from retrysafe.testing.adapters.on_server import OnServer, Program
from retrysafe.testing.adapters.server import Server, address
from retrysafe.testing.postgres import PostgresServer, is_available

Kind = Literal["full", "locked", "stopped"]

SETTINGS = {
    # Every reference application has some for its store and some for itself, and many of them stand idle.
    "max_connections": "1000",
    # It may be stopped, but its machine keeps its power.
    "fsync": "off",
}

# By row: a statement that finds that there is nothing to be written is not refused.
_REFUSE = """
CREATE OR REPLACE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'no space left on device' USING ERRCODE = 'disk_full';
END $$;
CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE OR DELETE ON retrysafe_records
FOR EACH ROW EXECUTE FUNCTION full_disk();
"""


PROGRAM = Program(
    lambda: PostgresServer(**SETTINGS),
    is_available,
    "PostgreSQL is not installed: pip install 'retrysafe[testing]'",
)


class Postgres(OnServer[PostgresServer]):
    """`driver` is one of SQLAlchemy's, where the application is to have an engine.

    What an outage is can be chosen.  "full": the server refuses to write records, as it does when there is no
    space on its disk.  "locked": another transaction has locked their table, as a migration does that does
    not end. "stopped": the server is shut down, and started again.  But for the last, everything else works.

    The server is shared by all suites of a process, but for those that stop it.
    """

    def __init__(self, driver: str | None = None, outage: Kind = "full") -> None:
        title = f"PostgreSQL, SQLAlchemy with {driver}" if driver else "PostgreSQL"
        super().__init__(title, PROGRAM, own=outage == "stopped")
        self._scheme = f"postgresql+{driver}" if driver else "postgresql"
        self._kind: Kind = outage

    def new(self, folder: Path) -> str:  # noqa: ARG002 - it has a place of its own
        return self.server.new_database().replace("postgresql", self._scheme, 1)

    def outage(self, url: str) -> AbstractContextManager[None]:
        match self._kind:
            case "full":
                return self._full(url)
            case "locked":
                return self._locked(url)
            case "stopped":
                return self._stopped()

    def outage_at_the_end(self, api: Server) -> AbstractContextManager[None]:
        """The same: what a handler wrote does not keep others from locking the records."""
        return self.outage(api.store)

    @contextmanager
    def _stopped(self) -> Generator[None]:
        self.server.stop()
        try:
            yield
        finally:
            self.server.start()

    @contextmanager
    def _full(self, url: str) -> Generator[None]:
        with psycopg.connect(address(url), autocommit=True) as other:
            other.execute(_REFUSE)
            yield
            other.execute("DROP TRIGGER full_disk ON retrysafe_records")

    @contextmanager
    def _locked(self, url: str) -> Generator[None]:
        with psycopg.connect(address(url)) as other:
            other.execute("LOCK TABLE retrysafe_records IN EXCLUSIVE MODE")
            yield
            other.rollback()
