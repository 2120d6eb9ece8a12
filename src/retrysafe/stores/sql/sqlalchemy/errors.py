"""What a driver's error means, whichever driver it is."""

from sqlalchemy.exc import DBAPIError

from retrysafe.errors import StoreUnavailable
from retrysafe.stores.retry import Trouble
from retrysafe.stores.sql.backend import Backend


def trouble(error: BaseException, backend: Backend) -> Trouble:
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return backend.trouble(original)


def unreachable(error: BaseException, backend: Backend) -> StoreUnavailable:
    """No connection could be opened."""
    return StoreUnavailable(f"cannot connect to {backend.title}: {trouble(error, backend).described}")
