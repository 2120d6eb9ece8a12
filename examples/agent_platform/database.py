"""The engine, the guard that shares it, and the sessions that join what the guard commits."""

import os
from collections.abc import Generator

from sqlalchemy import create_engine, orm

from retrysafe import Guard, scopes, stores
from retrysafe.sqlalchemy import sessionmaker

# For PostgreSQL: postgresql+psycopg://platform:secret@localhost/platform
# For MariaDB and MySQL: mysql+pymysql://platform:secret@localhost/platform
engine = create_engine(os.environ.get("PLATFORM_DATABASE", "sqlite:///platform.db"))

guard = Guard(
    stores.from_engine(engine),
    # X-Idempotency-Key, optional; 409 "Request is being processed"; 24 hours.
    profile="agents",
    effects="database",
    # Who it is, and not by which token: a retry after a refresh is a replay.
    scope=scopes.argument("agent.id"),
    # How long a retry waits for a worker that was killed.  Renewed while a handler runs.
    lease=float(os.environ.get("PLATFORM_LEASE", "30")),
)

# What was committed can be read from the rows without asking the database once more.
Session = sessionmaker(guard, expire_on_commit=False)


def get_session() -> Generator[orm.Session]:
    """A session per request, as FastAPI's tutorial has it."""
    with Session() as session:
        yield session
