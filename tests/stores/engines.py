"""Engines of every driver, for the tests of stores that are made from them."""

from typing import Any

from sqlalchemy import create_engine, make_url
from sqlalchemy.ext.asyncio import create_async_engine

from retrysafe.stores.sql.sqlalchemy.engines import AnyEngine

DRIVERS = ("asyncpg", "pg8000", "psycopg", "psycopg_async")
ASYNC = ("asyncpg", "psycopg_async", "aiosqlite", "asyncmy", "aiomysql")


def engine_for(url: str, driver: str, **more: Any) -> AnyEngine:
    """An engine of this driver for the database at this address."""
    make = create_async_engine if driver in ASYNC else create_engine
    dialect = make_url(url).get_backend_name()
    return make(make_url(url).set(drivername=f"{dialect}+{driver}"), **more)
