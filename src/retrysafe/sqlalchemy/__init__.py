"""SQLAlchemy 2, with what a guarded call writes and what it answers committed together.

    guard = Guard(stores.from_engine(engine), scope=…, effects="database")
    Session = sessionmaker(guard)

Where one would say `sessionmaker(engine)`, say `sessionmaker(guard)`; the same for `async_sessionmaker` and,
in Core, `begin(guard)` for `engine.begin()`.  Inside a guarded call with `effects="database"` they join the
call's transaction: `commit()` is provisional, and becomes real with the answer.  Anywhere else they are
what they always were.

    sessions.py      the session makers
    core.py          connections without a session
    transaction.py   the transaction that they join; sqlite.py what it needs there
    dialect.py       what is said in it, as it is said
    turns.py         several sessions in it, and what one must not undo of another's
    tables.py        our tables, for Alembic
"""

from retrysafe.sqlalchemy.core import begin, begin_async
from retrysafe.sqlalchemy.sessions import async_sessionmaker, sessionmaker
from retrysafe.sqlalchemy.tables import tables

__all__ = ["async_sessionmaker", "begin", "begin_async", "sessionmaker", "tables"]
