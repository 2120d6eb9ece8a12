"""retrysafe for people who have SQLAlchemy: `tables(metadata)` tells Alembic of our tables."""

from retrysafe.sqlalchemy.tables import Tables, tables

__all__ = ["Tables", "tables"]
