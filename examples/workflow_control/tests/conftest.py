"""The stores that its keys are tried in."""

from tests.any_store import address
from tests.servers import database, mariadb, postgres, valkey

__all__ = ["address", "database", "mariadb", "postgres", "valkey"]
