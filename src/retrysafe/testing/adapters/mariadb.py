"""MariaDB behind the reference application: a server of one's own, a database for each application."""

from collections.abc import Generator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Literal

from retrysafe.testing.adapters.on_server import OnServer, Program
from retrysafe.testing.adapters.server import Server
from retrysafe.testing.mariadb import MariaDBServer, is_available
from retrysafe.testing.reference.databases import connect_to_mysql

Kind = Literal["full", "locked", "stopped"]

SETTINGS = {
    # Every reference application has some for its store and some for itself, and many of them stand idle.
    "max_connections": "1000",
    # It may be killed, but its machine keeps its power.
    "innodb_flush_method": "nosync",
}

PROGRAM = Program(
    lambda: MariaDBServer(**SETTINGS),
    is_available,
    "MariaDB is not installed: run `make services`, or install Debian's mariadb-server",
)

_OPERATIONS = ("INSERT", "UPDATE", "DELETE")

# The error that InnoDB reports when there is no space for a row.
_REFUSE = """
CREATE TRIGGER full_disk_{0} BEFORE {0} ON retrysafe_records FOR EACH ROW
    SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table is full'
"""


class MariaDB(OnServer[MariaDBServer]):
    """`driver` is one of SQLAlchemy's, where the application is to have an engine.

    What an outage is can be chosen.  "full": the server refuses to write records, as it does when there is no
    space on its disk.  "locked": another session has locked their table, as a migration does that does not
    end.  "stopped": the server is killed, and started again.  But for the last, everything else works.

    The server is shared by all suites of a process, but for those that stop it.
    """

    def __init__(self, driver: str | None = None, outage: Kind = "full") -> None:
        title = f"MariaDB, SQLAlchemy with {driver}" if driver else "MariaDB"
        super().__init__(title, PROGRAM, own=outage == "stopped")
        self._scheme = f"mysql+{driver}" if driver else "mysql"
        self._kind: Kind = outage

    def new(self, folder: Path) -> str:  # noqa: ARG002 - it has a place of its own
        return self.server.new_database().replace("mysql", self._scheme, 1)

    def outage(self, url: str) -> AbstractContextManager[None]:
        match self._kind:
            case "full":
                return self._full(url)
            case "locked":
                return self._locked(url)
            case "stopped":
                return self._killed()

    def outage_at_the_end(self, api: Server) -> AbstractContextManager[None]:
        """The same: what a handler wrote does not keep others from locking the records."""
        return self.outage(api.store)

    @contextmanager
    def _full(self, url: str) -> Generator[None]:
        with closing(connect_to_mysql(url)) as other, other.cursor() as cursor:
            for operation in _OPERATIONS:
                cursor.execute(_REFUSE.format(operation))
            yield
            for operation in _OPERATIONS:
                cursor.execute(f"DROP TRIGGER full_disk_{operation}")

    @contextmanager
    def _locked(self, url: str) -> Generator[None]:
        with closing(connect_to_mysql(url)) as other, other.cursor() as cursor:
            cursor.execute("LOCK TABLES retrysafe_records READ")
            yield
            cursor.execute("UNLOCK TABLES")
