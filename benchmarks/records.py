"""Fills a store with as many records as one wants, in seconds.

The store itself makes the tables and one record; the database then copies that row with identities of their
own.  So the rows are what this release writes, whatever its columns are.
"""

import os
import sqlite3
import time
from binascii import unhexlify
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.database import Database, arguments_of
from benchmarks.servers import Running, Server
from retrysafe import stores
from retrysafe._core.model import Claim, Final, Response

DAY = 86_400.0

ANSWER = Final(
    "completed",
    Response(
        201,
        ((b"content-type", b"application/json"), (b"location", b"/charges/1")),
        b'{"id":1,"amount":100}',
    ),
)


@dataclass(frozen=True)
class Place:
    """A store of the benchmark's own, which this process and a server of it can open."""

    store: str
    folder: Path
    url: str

    @classmethod
    def new(cls, store: str, folder: Path, database: Database | None) -> "Place":
        """An empty one, in a file or in this database server."""
        folder.mkdir(parents=True)
        return cls(store, folder, f"sqlite:///{folder / 'keys.db'}" if database is None else database.new())

    @property
    def file(self) -> Path | None:
        """Of SQLite."""
        return self.folder / "keys.db" if self.url.startswith("sqlite:") else None

    def serve(self, core: int | None) -> Running:
        """A server with this store."""
        if self.file is not None:
            return Running(Server("sqlite"), self.folder, core)
        return Running(Server("at_address"), self.folder, core, self.url)


def claim(id: bytes | None = None) -> Claim:
    """As a request makes it."""
    return Claim(
        id=id or os.urandom(32),
        token=os.urandom(16),
        fingerprint=bytes(32),
        lease=30.0,
        retention=DAY,
        hold=30 * DAY,
        door="request",
        scope=(("header:x-tenant", "acme"),),
        key=os.urandom(16).hex(),
        action="POST",
        target="/charges",
        request_id=os.urandom(16).hex(),
    )


def fill(place: Place, count: int, *, expired: bool = False) -> None:
    """Make the tables and `count` completed records that live for hours yet, or have expired.

    They were created one after the other in the last 23 hours; or, to have expired, two days before.  Rows
    that were made together expire together, so a purge finds them side by side, as it does in a store that
    has grown.
    """
    store = stores.open(place.url, deadline=60)
    first = claim()
    store.reserve(first)
    store.finish(first, ANSWER)
    store.close()
    age = 2 * DAY if expired else 0
    if place.file is not None:
        _fill_sqlite(place.file, count, age)
    elif place.store == "PostgreSQL":
        _fill_postgresql(place.url, count, age)
    elif place.store == "MariaDB":
        _fill_mariadb(place.url, count, age)
    else:
        _fill_valkey(place.url, first.id, count, age)


_TIMES = ("created_at", "updated_at", "completed_at", "lease_until", "expires_at", "held_until")


def _fill_sqlite(path: Path, count: int, age: float) -> None:
    shift = "(:age + 82800.0 * (:count - n) / :count)"
    changed = {
        "id": "randomblob(32)",
        "token": "randomblob(16)",
        "key": "lower(hex(randomblob(16)))",
        "request_id": "lower(hex(randomblob(16)))",
        **{name: f"{name} - {shift}" for name in _TIMES},
    }
    database = sqlite3.connect(path, isolation_level=None)
    # No other process has it open, and if this is interrupted the file is thrown away.
    for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -500000"):
        database.execute(f"PRAGMA {pragma}")
    columns = [row[1] for row in database.execute("PRAGMA table_info(retrysafe_records)")]
    database.execute(
        f"""
        WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < :count)
        INSERT INTO retrysafe_records ({", ".join(columns)})
        SELECT {_values(columns, changed)} FROM number, (SELECT * FROM retrysafe_records LIMIT 1)
        """,
        {"count": count, "age": age},
    )
    database.execute("PRAGMA journal_mode = WAL")
    database.close()


def _fill_postgresql(url: str, count: int, age: float) -> None:
    import psycopg

    shift = f"interval '1 second' * ({age} + 82800.0 * ({count} - n) / {count})"
    digits = "replace(gen_random_uuid()::text, '-', '')"
    changed = {
        "id": "sha256(uuid_send(gen_random_uuid()))",
        "token": "uuid_send(gen_random_uuid())",
        "key": digits,
        "request_id": digits,
        **{name: f"{name} - {shift}" for name in _TIMES},
    }
    with psycopg.connect(url, autocommit=True) as database:
        # If the machine stops, the whole server is thrown away.
        database.execute("SET synchronous_commit = off")
        found = database.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'retrysafe_records'::regclass"
            " AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        columns = [row[0] for row in found]
        database.execute(
            f"""
            INSERT INTO retrysafe_records ({", ".join(columns)})
            SELECT {_values(columns, changed)}
            FROM generate_series(1, {count}) AS n, (SELECT * FROM retrysafe_records LIMIT 1) AS first
            """.encode()
        )
        # What autovacuum would do within a minute, so that it does not do it while something is measured.
        database.execute("VACUUM (ANALYZE) retrysafe_records")
        database.execute("CHECKPOINT")


def _fill_mariadb(url: str, count: int, age: float) -> None:
    import pymysql

    shift = f"INTERVAL ({age} + 82800.0 * ({count} - one.n) / {count}) * 1000000 MICROSECOND"
    digits = "REPLACE(UUID(), '-', '')"
    changed = {
        "id": "one.id",
        "token": "RANDOM_BYTES(16)",
        "key": digits,
        "request_id": digits,
        **{name: f"first.{name} - {shift}" for name in _TIMES},
    }
    with pymysql.connect(**arguments_of(url)) as connection, connection.cursor() as cursor:
        # If the machine stops, the whole server is thrown away.
        cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 0")
        cursor.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE()"
            " AND table_name = 'retrysafe_records' ORDER BY ordinal_position"
        )
        columns = [row[0] for row in cursor.fetchall()]
        names = ", ".join(f"`{column}`" for column in columns)
        values = ", ".join(changed.get(column, f"first.`{column}`") for column in columns)
        cursor.execute("CREATE TEMPORARY TABLE first AS SELECT * FROM retrysafe_records LIMIT 1")
        # In the order of the table's own index, which is then written from its beginning to its end.
        cursor.execute(
            "CREATE TEMPORARY TABLE one (id BINARY(32) NOT NULL PRIMARY KEY, n INT NOT NULL) ENGINE=Aria"
            f" SELECT UNHEX(SHA2(UUID(), 256)) AS id, seq AS n FROM seq_1_to_{count} ORDER BY id"
        )
        cursor.execute(
            f"INSERT INTO retrysafe_records ({names}) SELECT {values} FROM one, first ORDER BY one.id"
        )
        cursor.execute("DROP TEMPORARY TABLE one, first")
        cursor.execute("ANALYZE TABLE retrysafe_records")
        cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 1")


_PIECE = 5_000
"""Records that one script makes: a server answers nothing else meanwhile."""

_COPY = """
    local fields = redis.call('HGETALL', KEYS[1])
    local base, tail = string.match(KEYS[1], '^(.*:{)%x%x(}:)')
    local head
    for place = 1, #fields, 2 do
        if fields[place] == 's' then
            head = place + 1
        end
    end
    local FORMAT = '<BBBBBBI4dddddddBB'
    local values = {struct.unpack(FORMAT, fields[head])}
    local rest = string.sub(fields[head], struct.size(FORMAT) + 1)
    local first, count, age = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
    for number = 0, #ARGV[1] / 64 - 1 do
        local shift = age + 82800 * (count - first - number) / count
        local id = string.sub(ARGV[1], number * 64 + 1, number * 64 + 64)
        local bucket = base .. string.sub(id, 1, 2) .. tail
        local shifted = {unpack(values)}
        for place = 8, 14 do
            if values[place] > 0 then
                shifted[place] = values[place] - shift
            end
        end
        local expires = shifted[12]
        fields[head] = struct.pack(FORMAT, unpack(shifted, 1, 16)) .. rest
        redis.call('HSET', bucket .. 'r:' .. id, unpack(fields))
        redis.call('PEXPIREAT', bucket .. 'r:' .. id, string.format('%.0f', (expires + MARGIN) * 1000))
        redis.call('ZADD', bucket .. 'ids', expires, id)
    end
"""


def _fill_valkey(url: str, like: bytes, count: int, age: float) -> None:
    import redis

    from retrysafe.stores.redis.address import PREFIX
    from retrysafe.stores.redis.scripts import Layout

    # The server removes by itself what expired long ago, and that is not what is measured.
    shift, margin = (age, DAY) if age else (0.0, 3600.0)
    place = Layout(PREFIX).of(like).record_of(like)
    with redis.Redis.from_url(url) as client:
        # If the machine stops, the whole server is thrown away.
        client.config_set("appendonly", "no")
        copy = client.register_script(_COPY.replace("MARGIN", str(2 * DAY + margin)))
        for first in range(0, count, _PIECE):
            ids = os.urandom(32 * min(_PIECE, count - first)).hex()
            copy(keys=[place], args=[ids, first, count, shift])
        client.config_set("appendonly", "yes")
        while (state := client.info("persistence"))["aof_rewrite_in_progress"] or state[
            "aof_rewrite_scheduled"
        ]:
            time.sleep(0.1)


def _values(columns: list[str], changed: Mapping[str, str]) -> str:
    return ", ".join(changed.get(column, column) for column in columns)


def some_ids(place: Place, count: int) -> list[bytes]:
    """Identities of records all over the table."""
    every = _ids(place)
    step = max(1, len(every) // count)
    return every[::step][:count]


def _ids(place: Place) -> list[bytes]:
    """In the order in which the records were made, where that is known."""
    if place.file is not None:
        with closing(sqlite3.connect(place.file)) as database:
            return [id for (id,) in database.execute("SELECT id FROM retrysafe_records ORDER BY rowid")]
    ordered = "SELECT id FROM retrysafe_records ORDER BY created_at"
    match place.store:
        case "PostgreSQL":
            import psycopg

            with psycopg.connect(place.url) as connection:
                return [id for (id,) in connection.execute(ordered)]
        case "MariaDB":
            import pymysql

            with pymysql.connect(**arguments_of(place.url)) as there, there.cursor() as cursor:
                cursor.execute(ordered)
                return [row[0] for row in cursor.fetchall()]
        case _:
            import redis

            from retrysafe.stores.redis.address import PREFIX
            from retrysafe.stores.redis.scripts import Layout

            with redis.Redis.from_url(place.url) as client, client.pipeline(transaction=False) as pipe:
                for bucket in Layout(PREFIX).buckets:
                    pipe.zrange(bucket.ids, 0, -1)
                return [unhexlify(id) for ids in pipe.execute() for id in ids]
