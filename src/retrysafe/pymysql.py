"""PyMySQL, with what a guarded call writes and its response committed together.

    connect = partial(pymysql.connect, host="db", user="shop", password="…", database="shop")

    with connection(guard, connect) as db, db.cursor() as cursor:
        cursor.execute("INSERT INTO orders (item) VALUES (%s)", [item])

Where one would write `with connect() as db`.  Inside a guarded call with `effects="database"` the block
joins the call's transaction: leaving it, or `commit()`, is provisional, and becomes real with the response.
Anywhere else the block is a transaction of its own.  PyMySQL has no pool; that of another package is used by
a function which gives a connection for the length of a `with` block.

MySQL and MariaDB commit before and after statements such as `CREATE TABLE`.  Inside a guarded
call such a statement is refused and not sent.  After a deadlock they roll back the whole transaction: if the
handler goes on nevertheless, nothing is committed, and the client is told to try again.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pymysql
from pymysql.constants import SERVER_STATUS
from pymysql.cursors import Cursor

from retrysafe._core.attempt import connected
from retrysafe._core.model import Claim, Final, Found
from retrysafe._runtime.transactions import BeginLock, Blocks, Previous, join
from retrysafe.errors import CommitRefused, ConfigurationError, NotJoined, StoreUnavailable
from retrysafe.events import log
from retrysafe.guard import Guard
from retrysafe.stores.queue import Arguments, Operation, Row
from retrysafe.stores.sql import operations
from retrysafe.stores.sql.join import Joint
from retrysafe.stores.sql.mysql.endings import ends_transaction
from retrysafe.stores.sql.mysql.join import DEADLOCKED, MARK, RESTORE, rolls_back

__all__ = ["connection"]

T = TypeVar("T")

if TYPE_CHECKING:  # generic for checkers alone
    Connection = pymysql.Connection[Any]
else:
    Connection = pymysql.Connection
Connect = Callable[[], AbstractContextManager[Connection]]

_ENDED_BY_HANDLER = (
    "a handler tried to end the transaction of its guarded call, or to execute a statement before which the "
    "database commits, such as CREATE TABLE or LOCK TABLES: only the guard commits it, together with the "
    "response. Leave the block, or call commit() or rollback(), which are provisional; change tables "
    "elsewhere"
)
_AUTOCOMMIT = (
    "a handler tried to switch on autocommit inside a guarded call, where only the guard commits: leave it "
    "off"
)
_LEFT = (
    "commit() or rollback() of a guarded call's connection was called outside of every block of "
    "connection(guard, connect): leaving a block has committed it, provisionally"
)
_IN_TRANSACTION = (
    "the connection that this guarded call was given is in a transaction already, which it cannot make a "
    "part of its own: give connection(guard, connect) one on which nothing was done since its last commit"
)


@contextmanager
def connection(guard: Guard, connect: Connect) -> Generator[Connection]:
    """A connection to the guard's database, for as long as the block lasts.  `connect` opens one."""
    joint = _joint(guard)
    joined = join(guard.store, PyMySQLTransaction, lambda: PyMySQLTransaction(joint, connect))
    if joined is not None:
        with joined.block() as db:
            yield db
        return
    with connect() as ordinary, connected(guard.store):
        try:
            yield ordinary
        except BaseException:
            with suppress(pymysql.Error):  # it is lost, and with it what was not committed
                ordinary.rollback()
            raise
        ordinary.commit()


def _joint(guard: Guard) -> Joint:
    joint = getattr(guard.store, "joint", None)
    if not isinstance(joint, Joint) or joint.dialect != "mysql":
        raise ConfigurationError(
            f"retrysafe.pymysql needs a guard whose store is in MySQL or MariaDB, and this guard's store is "
            f"{guard.store!r}"
        )
    return joint


class PyMySQLTransaction:
    """The transaction of one guarded call."""

    def __init__(self, joint: Joint, connect: Connect) -> None:
        self._joint = joint
        self._connect = connect
        self._blocks = Blocks()
        self.begin_lock = BeginLock()
        self._db: JoinedConnection | None = None

    @property
    def begun(self) -> bool:
        return self._db is not None

    @contextmanager
    def block(self) -> Generator[Connection]:
        """A part of it, which takes effect as a whole or not at all."""
        if self._db is not None:
            with self._blocks.one(), self._db.block():
                yield self._db
            return
        db = self._begin()
        try:
            with self._blocks.one(), db.first_block():
                yield db
        except BaseException:
            self.roll_back()  # nothing came before this part, so there is nothing else to lose
            raise

    def _begin(self) -> "JoinedConnection":
        with self.begin_lock.beginning():
            opened = self._connect()
            db = joining(opened.__enter__(), opened)
            try:
                db.begin_call()
                self.begin_lock.begun(lambda: self._assign(db))
            except BaseException:
                db.give_back(sound=False)
                raise
        return db

    def _assign(self, db: "JoinedConnection") -> None:
        self._db = db

    def commit(self, claim: Claim, final: Final) -> bool:
        db = self._db
        assert db is not None
        try:
            self._blocks.check()
            if db.lost:
                raise CommitRefused(DEADLOCKED, passing=True)
            db.is_concluded = True
            stored = self._joint.perform(operations.conclude(claim, final), db.fetch)
            if stored:
                db.really_commit()
        except pymysql.Error as error:
            raise self._joint.not_committed(error) from error
        finally:
            self.roll_back()
        return stored

    def roll_back(self, *, discard: bool = False) -> None:
        db, self._db = self._db, None
        if db is None:
            return
        sound = False
        try:
            # A handler that was cancelled, or whose block is open, may still be using it.
            if not discard and not self._blocks.any_open:
                db.really_roll_back()
                sound = True
        except pymysql.Error as error:
            # The server rolls back what was not committed as soon as it notices that the connection is gone.
            log.warning("the rollback of a guarded call failed, its connection is dropped: %s", error)
        finally:
            db.give_back(sound=sound)

    def fileno(self) -> int | None:
        socket: Any = getattr(self._db, "_sock", None)
        return None if socket is None else int(socket.fileno())

    locks_database = False

    def look(self, id: bytes) -> Found | None:
        return self._perform(operations.look(id))

    def store_within(self, claim: Claim, final: Final, previous: Previous | None) -> bool:
        return self._perform(operations.store_within(claim, final, previous))

    def _perform(self, operation: Operation[T]) -> T:
        assert self._db is not None
        try:
            return self._joint.perform(operation, self._db.fetch)
        except pymysql.Error as error:
            raise StoreUnavailable(f"the database could not read or store a record: {error}") from error


class JoinedConnection(Connection):
    """A connection whose transaction the guard commits: its own `commit` is provisional."""

    _opened: AbstractContextManager[object]
    _plain: type[Connection]
    _savepoints: list[str | None]
    """Of each open block: what its `rollback()` goes back to.  Of the first one it is the beginning, until it
    has committed something."""
    _number = 0
    _by_guard = False
    _has_autocommit = False
    """Where it is not the guard's."""
    is_concluded = False
    """Its completion was executed."""
    lost = False
    """The server has rolled back all of the transaction, and so perhaps more than the handler knows of."""

    # --- what the handler may do

    def query(self, sql: Any, unbuffered: bool = False) -> int:  # noqa: ANN401 - as PyMySQL has it
        # Every statement of a cursor comes by here.
        if not self._by_guard:
            if self.lost:
                raise NotJoined(DEADLOCKED)
            if ends_transaction(sql if isinstance(sql, str) else bytes(sql).decode("latin-1")):
                raise NotJoined(_ENDED_BY_HANDLER)
        return self._send(sql, unbuffered=unbuffered)

    def begin(self) -> None:
        raise NotJoined(_ENDED_BY_HANDLER)

    def commit(self) -> None:
        """Provisionally: what comes now can be rolled back without what came before."""
        self._check_open()
        name = self._savepoints[-1] or self._new_name()
        self.query(f"SAVEPOINT {name}")  # in the place of the one before it
        self._savepoints[-1] = name

    def rollback(self) -> None:
        """Back to the last `commit()`, or to the beginning of the block."""
        self._check_open()
        name = self._savepoints[-1]
        if not self.lost:
            self._send(_TO_MARK if name is None else f"ROLLBACK TO SAVEPOINT {name}")
        elif name is None:
            super().rollback()  # which leaves nothing of a transaction that the server has not rolled back
            self._send(MARK)
            self.lost = False

    def autocommit(self, value: bool) -> None:
        if value:
            raise NotJoined(_AUTOCOMMIT)

    def close(self) -> None:
        """Nothing: it is given back with the call's transaction."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Nothing, as `close`."""

    def _check_open(self) -> None:
        if not self._savepoints:
            raise NotJoined(_LEFT)

    # --- what its transaction does

    def begin_call(self) -> None:
        status: int = getattr(self, "server_status", 0)
        if status & SERVER_STATUS.SERVER_STATUS_IN_TRANS:
            raise NotJoined(_IN_TRANSACTION)
        if self.get_autocommit():
            # BEGIN is not enough: after a deadlock, what the handler writes would be committed at once.
            self._has_autocommit = True
            self._send("SET autocommit = 0")
        self._send(MARK)

    @contextmanager
    def first_block(self) -> Generator[None]:
        self._savepoints = [None]
        try:
            yield
        finally:
            self._savepoints.pop(0)

    @contextmanager
    def block(self) -> Generator[None]:
        name = self._new_name()
        self.query(f"SAVEPOINT {name}")
        self._savepoints.append(name)
        try:
            yield
        except BaseException:
            if not self.lost:
                with suppress(pymysql.Error):  # without the connection there is no COMMIT either
                    self._send(f"ROLLBACK TO SAVEPOINT {name}")
            raise
        finally:
            self._savepoints.remove(name)

    def fetch(self, sql: str, arguments: Arguments) -> Sequence[Row]:
        assert not arguments, "they are a part of the text"
        self._by_guard = True
        try:
            # A plain cursor, whichever the application prefers: each kind has rows of another form.
            with self.cursor(Cursor) as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall())
        finally:
            self._by_guard = False

    def really_commit(self) -> None:
        super().commit()

    def really_roll_back(self) -> None:
        super().rollback()
        if self.is_concluded:
            self._send(RESTORE)
        if self._has_autocommit:
            self._send("SET autocommit = 1")

    def give_back(self, *, sound: bool) -> None:
        self.__class__ = self._plain  # type: ignore[assignment]  # it is the application's again
        if not sound:
            with suppress(pymysql.Error):  # it is closed already
                self.close()
        with suppress(pymysql.Error):  # as it says again
            self._opened.__exit__(None, None, None)

    def _send(self, sql: Any, *, unbuffered: bool = False) -> int:  # noqa: ANN401 - text or bytes
        try:
            return super().query(sql, unbuffered)  # pyright: ignore[reportUnknownMemberType]  # text or bytes
        except pymysql.Error as error:
            self.lost = self.lost or rolls_back(error)
            raise

    def _new_name(self) -> str:
        self._number += 1
        return f"retrysafe_{self._number}"


_TO_MARK = MARK.replace("SAVEPOINT", "ROLLBACK TO SAVEPOINT", 1)


def joining(db: Any, opened: AbstractContextManager[object]) -> JoinedConnection:  # noqa: ANN401 - it is looked at
    """The same connection, whose transaction is a guarded call's from now on."""
    if pymysql.Connection not in type(db).__mro__:
        opened.__exit__(None, None, None)
        raise ConfigurationError(
            f"connection(guard, connect) was given a function that opens {type(db).__name__}: expected a "
            "pymysql.Connection, or a block that gives one"
        )
    plain: type[Any] = db.__class__
    db.__class__ = _joining_class(plain)
    db._opened, db._plain, db._savepoints = opened, plain, []
    # It may have been another call's before, and have ended badly.
    db._has_autocommit = db.is_concluded = db.lost = False
    found: JoinedConnection = db
    return found


_classes: dict[object, type[JoinedConnection]] = {}


def _joining_class(plain: type[Any]) -> type[JoinedConnection]:
    if plain not in _classes:
        _classes[plain] = type(plain.__name__, (JoinedConnection, plain), {})
    return _classes[plain]
