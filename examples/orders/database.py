"""The engine, the guard that shares it, and the sessions that join what the guard commits."""

import os
from collections.abc import Generator

from sqlalchemy import create_engine, orm

from retrysafe import Guard, scopes, stores
from retrysafe.sqlalchemy import sessionmaker

# For PostgreSQL: postgresql+psycopg://shop:secret@localhost/shop
# For MariaDB and MySQL: mysql+pymysql://shop:secret@localhost/shop
engine = create_engine(os.environ.get("SHOP_DATABASE", "sqlite:///shop.db"))

guard = Guard(
    stores.from_engine(engine),
    effects="database",
    # Set by the service in front of this one, which authenticates customers.
    scope=scopes.header("X-Customer"),
    required=True,
    # Goes into the keys that the provider gets: see `derive` in `app.py`.
    secret=os.environ.get("SHOP_SECRET"),
    # How long a retry waits for a worker that was killed.  Renewed while a handler runs.
    lease=float(os.environ.get("SHOP_LEASE", "30")),
)

Session = sessionmaker(guard)


def get_session() -> Generator[orm.Session]:
    """A session per request, as FastAPI's tutorial has it."""
    with Session() as session:
        yield session
