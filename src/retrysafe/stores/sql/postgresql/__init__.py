"""PostgreSQL: the store for production."""
