"""An operator's session on a connection by psycopg: the store's own conversation, waited for by a thread."""

from collections.abc import Mapping, Sequence
from time import monotonic

from retrysafe.stores.sql.operations import Row
from retrysafe.stores.sql.postgresql.connect import Source
from retrysafe.stores.sql.postgresql.refusals import explained
from retrysafe.stores.sql.postgresql.waiting import wait


class OperatorSession:
    """A connection of its own.  Any server will do: one that takes no writes can still be looked at."""

    def __init__(self, source: Source) -> None:
        self._session = source.open()

    @property
    def process(self) -> int | None:
        return self._session.pgconn.backend_pid

    def query(self, name: str, arguments: Mapping[str, object], within: float) -> Sequence[Row]:
        with explained():
            conversation = self._session.query(name, **arguments)
            return wait(conversation, self._session.socket, monotonic() + within)

    def command(self, sql: str, within: float) -> None:
        with explained():
            wait(self._session.command(sql), self._session.socket, monotonic() + within)

    def close(self) -> None:
        self._session.close()
