"""The engine, the store in its database, the two guards that share it, and the sessions that join them."""

from collections.abc import Generator

from sqlalchemy import create_engine, orm

from examples.validation_service.settings import DATABASE, LEASE
from retrysafe import Guard, scopes, stores
from retrysafe.sqlalchemy import sessionmaker

engine = create_engine(DATABASE)
store = stores.from_engine(engine)

# Requests of clients: Idempotency-Key, 24 hours; a key belongs to an organisation.
requests = Guard(
    store,
    profile="validation-api",
    effects="database",
    scope=scopes.header("X-Organisation"),
    required=True,
    lease=LEASE,
)

# Callbacks of jobs: the callback_id in the payload, 30 days; whose ids they are say the receipts.
events = Guard(store, profile="job-callbacks", effects="database", lease=LEASE)

# A session joins by its store, so this is right for both.
Session = sessionmaker(requests)


def get_session() -> Generator[orm.Session]:
    """A session per request, as FastAPI's tutorial has it."""
    with Session() as session:
        yield session
