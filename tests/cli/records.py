"""Records for the tests of the command line: real claims on a real store, at times of their choosing."""

import os
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
import pymysql
from sqlalchemy import create_engine

from retrysafe import stores
from retrysafe._core import keys
from retrysafe._core.model import Claim, Door, Final, Headers, Inbox, Mode, Parts, Response
from retrysafe.stores.contract import Store
from retrysafe.stores.sql.postgresql import PostgresStore
from retrysafe.stores.sql.sqlite import SQLiteStore
from tests.stores.rows_mysql import connect

DAY = 86400.0
JSON: Headers = ((b"content-type", b"application/json"),)
PAYLOAD = (
    b'[["content-type", "application/json"], ["x-api-key", "sk_live_1"]]\n'
    b'{"id": "evt_1", "password": "hunter2"}'
)
ACME: Parts = (("tenant", "acme"), ("user", "42"))


class Shop:
    """A store in which time passes when it is told to; what it leaves behind is an ordinary file."""

    store: Store

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"
        self._now = time.time()
        self.store = SQLiteStore(path, clock=lambda: self._now)

    def claim(
        self,
        key: str = "pay_2026_11_15_0001",
        *,
        ago: float = 300.0,
        door: Door = "request",
        scope: Parts = ACME,
        action: str = "POST",
        target: str = "/payments",
        lease: float = 30.0,
        retention: float = DAY,
        hold: float = 30 * DAY,
        keep_key: bool = True,
        request_id: str = "req-7f3a",
        mode: Mode = "lease",
        inbox: Inbox | None = None,
    ) -> Claim:
        """A key that was claimed so many seconds ago, and nothing more."""
        claim = Claim(
            id=keys.digest(door, scope, key),
            token=os.urandom(16),
            fingerprint=sha256(b"what was asked").digest(),
            lease=lease,
            retention=retention,
            hold=hold,
            door=door,
            scope=scope,
            key=key if keep_key else None,
            action=action,
            target=target,
            request_id=request_id,
            correlation_id="trace-1",
            mode=mode,
            inbox=inbox,
        )
        self.at(ago)
        self.store.reserve(claim)
        return claim

    def at(self, ago: float) -> None:
        self._now = time.time() - ago

    def abandoned(self, key: str = "pay_2026_11_15_0001", *, ago: float = 300.0, **more: object) -> Claim:
        """A key whose owner died: the lease has ended long ago."""
        return self.claim(key, ago=ago, **more)  # type: ignore[arg-type]  # the keywords of `claim`

    def running(self, key: str, *, ago: float = 5.0, **more: object) -> Claim:
        """A key whose owner is at it, and will be for an hour."""
        return self.claim(key, ago=ago, lease=3600.0, **more)  # type: ignore[arg-type]  # the same

    def finished(
        self,
        key: str,
        response: Response | None = None,
        *,
        state: str = "completed",
        omitted: bool = False,
        ago: float = 300.0,
        **more: object,
    ) -> Claim:
        claim = self.claim(key, ago=ago, **more)  # type: ignore[arg-type]  # the same
        stored = response or Response(201, JSON, b'{"payment": 7}')
        self.store.finish(claim, Final("failed" if state == "failed" else "completed", stored, omitted))
        return claim

    def delivered(
        self, key: str, *, payload: bytes | None = PAYLOAD, due_in: float | None = 0.0, **more: object
    ) -> Claim:
        """An event whose payload is stored, and which waits for a worker."""
        claim: dict[str, object] = {
            "door": "callback",
            "scope": (),
            "action": "jobs",
            "target": "run-9",
            "lease": 0.0,
            "hold": 0.0,
            "inbox": None if payload is None else Inbox(payload, due_in),
            **more,
        }
        return self.claim(key, **claim)  # type: ignore[arg-type]  # the keywords of `claim`

    def failed_delivery(self, key: str, *, due_in: float | None = None, **more: object) -> Claim:
        """An event that a handler failed to handle, and when a worker tries again."""
        claim = self.delivered(key, **more)  # type: ignore[arg-type]  # the same
        details = (("status", "failed"), ("error", "ConnectionError: the ledger is down"))
        self.store.finish(claim, Final("failed", Response(500), details=details, due_in=due_in))
        return claim

    def checkpointed(self, key: str, head: Response, *, ago: float = 300.0) -> Claim:
        claim = self.claim(key, ago=ago)
        self.store.checkpoint(claim, head)
        return claim

    def expired(self, number: int, *, ago: float = 2 * DAY) -> Sequence[Claim]:
        return [self.finished(f"expired-{n:06}", ago=ago, hold=0.0) for n in range(number)]

    def close(self) -> None:
        self.store.close()


class LiveShop(Shop):
    """The same on any store, by the store's own clock: nothing is older than the test.

    Leases and retentions that have ended at an earlier time end at once here.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.store = stores.open(url, deadline=20.0)

    def claim(self, key: str = "pay_2026_11_15_0001", **more: object) -> Claim:
        ago = float(str(more.pop("ago", 300.0)))
        lease, retention = float(str(more.get("lease", 30.0))), float(str(more.get("retention", DAY)))
        more["lease"] = lease if lease > ago else 0.001
        more["retention"] = retention if retention > ago else 0.001
        return super().claim(key, **more)  # type: ignore[arg-type]  # its keywords

    def at(self, ago: float) -> None:
        """No clock is set."""


class PostgresShop(Shop):
    """The same in a PostgreSQL database: only its own connections have a clock that is behind.

    Functions are looked for along the search path, and one named like the server's own is found first where
    the path says so.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._direct = psycopg.connect(url, autocommit=True)
        self.execute("CREATE SCHEMA behind")
        self.execute("CREATE TABLE behind.past (ago interval)")
        self.execute("INSERT INTO behind.past VALUES ('0')")
        self.execute(
            "CREATE FUNCTION behind.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE "
            "AS 'SELECT pg_catalog.statement_timestamp() - ago FROM behind.past'"
        )
        self.store = PostgresStore(f"{url}?options=-csearch_path%3Dpublic,behind,pg_catalog", deadline=20.0)

    def at(self, ago: float) -> None:
        self._direct.execute("UPDATE behind.past SET ago = %s * interval '1 second'", [ago])

    def execute(self, sql: str) -> None:
        self._direct.execute(sql.encode())

    def close(self) -> None:
        super().close()
        self._direct.close()


class MySQLShop(Shop):
    """The same in MariaDB: the store's sessions have a clock that is behind."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._ago = 0.0
        self._engine = create_engine(url.replace("mysql:", "mysql+pymysql:"), creator=self._connect)
        self.store = stores.from_engine(self._engine, deadline=20.0)

    def _connect(self) -> "pymysql.Connection[Any]":
        db = connect(self.url)
        if self._ago:
            with db.cursor() as cursor:
                cursor.execute("SET SESSION timestamp = UNIX_TIMESTAMP(NOW(6)) - %s", [self._ago])
        return db

    def at(self, ago: float) -> None:
        if ago != self._ago:
            self._ago = ago
            self.store.close()  # its next session has the other clock

    def close(self) -> None:
        super().close()
        self._engine.dispose()


def identity(claim: Claim) -> str:
    """The first digits, as logs and lists have them."""
    return claim.id.hex()[:8]
