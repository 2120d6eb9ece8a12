"""An operator's session on a connection by psycopg: the store's own conversation, waited for by a thread.

What the server refuses is said in an operator's words, because somebody sits there and can act on them.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic

from retrysafe.errors import StoreError, StoreUnavailable
from retrysafe.stores.sql.operations import Row
from retrysafe.stores.sql.postgresql.connecting import Source
from retrysafe.stores.sql.postgresql.desk import TookTooLong
from retrysafe.stores.sql.postgresql.trouble import Trouble
from retrysafe.stores.sql.postgresql.waiting import wait


class OperatorSession:
    """A connection of its own.  Any server will do: one that takes no writes can still be looked at."""

    def __init__(self, source: Source) -> None:
        self._session = source.open()

    @property
    def process(self) -> int | None:
        return self._session.pgconn.backend_pid

    def query(self, name: str, arguments: Mapping[str, object], within: float) -> Sequence[Row]:
        with _explained():
            conversation = self._session.query(name, **arguments)
            return wait(conversation, self._session.socket, monotonic() + within)

    def command(self, sql: str, within: float) -> None:
        with _explained():
            wait(self._session.command(sql), self._session.socket, monotonic() + within)

    def close(self) -> None:
        self._session.close()


@contextmanager
def _explained() -> Generator[None]:
    try:
        yield
    except Trouble as trouble:
        raise _explanation(trouble) from None


def _explanation(trouble: Trouble) -> StoreError:
    said = trouble.reason
    match trouble.state:
        case "57014":
            return TookTooLong(f"it took too long, and PostgreSQL broke it off ({said}); nothing was done")
        case "55P03":
            return StoreUnavailable(
                f"somebody else has it locked for longer than can be waited for ({said}); nothing was done"
            )
        case "42501":
            return StoreUnavailable(
                f"this role may not do that ({said}): `retrysafe doctor` lists the rights that it needs, and "
                "`retrysafe sql --dialect postgresql` prints what a role that may make tables can run"
            )
        case "25006":
            return StoreUnavailable(f"this server takes no writes ({said}): give the address of the primary")
        case _:
            return trouble.as_error()
