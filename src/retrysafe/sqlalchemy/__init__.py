"""SQLAlchemy 2, with what a guarded call writes and its response committed together.

    guard = Guard(stores.from_engine(engine), scope=…, effects="database")
    Session = sessionmaker(guard)

Where one would write `sessionmaker(engine)`, write `sessionmaker(guard)`; the same for `async_sessionmaker`
and, in Core, `begin(guard)` for `engine.begin()`.  Inside a guarded call with `effects="database"` they join
the call's transaction: `commit()` is provisional, and becomes real with the response.  Anywhere else they
are ordinary sessions and connections.

    sessions.py          session makers, and connections without a session
    transaction.py       the transaction that they join; sqlite.py: what it needs on SQLite
    dialect.py           watches what is executed in it
    before_claim.py      sessions that have read before the key of their request is claimed
    savepoints.py        several sessions in it, and what one must not roll back of another's
    flask_sqlalchemy.py  sessions of Flask-SQLAlchemy
    tables.py            our tables, for Alembic
"""

from retrysafe.sqlalchemy.sessions import async_sessionmaker, begin, begin_async, sessionmaker
from retrysafe.sqlalchemy.tables import tables

__all__ = ["async_sessionmaker", "begin", "begin_async", "sessionmaker", "tables"]
