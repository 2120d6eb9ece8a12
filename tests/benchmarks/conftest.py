"""PostgreSQL for those who ask for it."""

from tests.servers import database, postgres

__all__ = ["database", "postgres"]
