"""The tables of a PostgreSQL database, and its time, from behind the store's back."""

from collections.abc import Sequence
from typing import Any

import psycopg

PATIENT = 20.0
"""Seconds.  A busy machine is no fault of the store."""

_CLOCK = """
    CREATE TABLE clock (now timestamptz NOT NULL);
    INSERT INTO clock VALUES (pg_catalog.now());
    CREATE FUNCTION statement_timestamp() RETURNS timestamptz STABLE LANGUAGE sql AS
        $$ SELECT now FROM public.clock $$;
"""


class Rows:
    """A database whose clock stands still until it is put forward: our statements find another
    `statement_timestamp` along the search path before they find PostgreSQL's own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection = psycopg.connect(url, autocommit=True)
        self.execute(_CLOCK)
        database = self._connection.info.dbname
        self.execute(f"ALTER DATABASE {database} SET search_path = public, pg_catalog")

    def execute(self, sql: str, arguments: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(sql.encode(), arguments)
        return cursor.fetchall() if cursor.description else []

    def elapse(self, seconds: float) -> None:
        self.execute("UPDATE clock SET now = now + %s * interval '1 second'", [seconds])

    def lose_lease(self, id: bytes) -> None:
        self.execute("UPDATE retrysafe_records SET lease_until = NULL WHERE id = %s", [id])

    def forget(self) -> None:
        """Empty the tables that are there."""
        for table in ("retrysafe_records", "retrysafe_audit", "retrysafe_verdicts", "retrysafe_routes"):
            if self.execute("SELECT to_regclass(%s)", [table]) != [(None,)]:
                self.execute(f"DELETE FROM {table}")

    def close(self) -> None:
        self._connection.close()
