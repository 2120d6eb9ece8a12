"""A PostgreSQL server in trouble, or one that does not want us: what leaves the store, and when."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from retrysafe._core.model import Found, Reserved
from retrysafe.errors import SchemaMismatch, StoreUnavailable
from retrysafe.stores.sql.postgresql import PostgresStore
from retrysafe.testing.postgres import PostgresServer
from retrysafe.testing.stores import a_claim, an_outcome
from tests.stores.halves import DEADLINE, SLACK, Both, Halves, Opened, patiently
from tests.stores.rows import PATIENT


@pytest.fixture(scope="module")
def battered(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """A server of these tests' own, because they stop and freeze it."""
    del postgres  # only where there is one
    with PostgresServer(fsync="off") as server:  # it is killed, but its machine is not
        yield server


class TestServer:
    """It dies, comes back, or says nothing."""

    def test_a_restart(self, battered: PostgresServer, both: Both, opened: Opened) -> None:
        """While the server is gone it is told at once, and without the password.  When it is back,
        connections that died are no trouble: another is opened at once."""
        url = battered.new_database().replace("postgres@", "postgres:hunter2@")
        idle, busy = both(opened(url)), both(opened(url))
        claims = [a_claim(f"key {n}") for n in range(2)]
        for half, claim in zip(idle, claims, strict=True):
            half.reserve(claim)
        for half in busy:
            half.look(claims[0].id)
        battered.kill()
        try:
            for half in busy:
                with pytest.raises(StoreUnavailable, match="PostgreSQL") as told:
                    half.reserve(a_claim("other"))
                assert "hunter2" not in str(told.value)
        finally:
            battered.start()
        for half, claim in zip(idle, claims, strict=True):
            assert half.finish(claim, an_outcome()) is True
        for number, half in enumerate(busy):
            assert half.reserve(a_claim(f"another {number}")) == Reserved(1)

    def test_a_frozen_server(self, battered: PostgresServer, halves: Halves, opened: Opened) -> None:
        """Whoever asks it, on a connection that is open or on one to be opened, hears within the deadline;
        and what it says when it thaws is nobody else's answer."""
        half = halves(opened(battered.new_database(), DEADLINE))
        half.reserve(a_claim())
        battered.freeze()
        try:
            for key in ("first", "second"):
                began = time.monotonic()
                with pytest.raises(StoreUnavailable, match="timed out"):
                    half.reserve(a_claim(key))
                assert time.monotonic() - began < DEADLINE + SLACK
        finally:
            battered.thaw()
        assert isinstance(patiently(lambda: half.reserve(a_claim())), Found)
        claim = a_claim("third")
        assert patiently(lambda: half.reserve(claim)) == Reserved(1)

    def test_a_replica(self, battered: PostgresServer, both: Both, opened: Opened) -> None:
        """It accepts no writes, so it is refused with words for whoever gave its address."""
        url = battered.new_database()
        opened(url).reserve(a_claim())
        with battered.replica() as replica:
            for half in both(opened(replica.url(url.rpartition("/")[2]))):
                with pytest.raises(StoreUnavailable, match="is a replica: use the address of the primary"):
                    half.look(a_claim().id)


class TestLocks:
    """Somebody holds a lock and never lets go of it."""

    @pytest.fixture
    def holder(self, database: str) -> Iterator["psycopg.Connection[Any]"]:
        with psycopg.connect(database) as connection:
            yield connection
            connection.rollback()

    def test_a_locked_row_bounds_every_operation(
        self, database: str, holder: "psycopg.Connection[Any]", halves: Halves, opened: Opened
    ) -> None:
        """Writes give up and leave no session behind that waits on; reads and renewals do not wait."""
        store = opened(database, DEADLINE)
        half = halves(store)
        claim = a_claim()
        half.reserve(claim)
        holder.execute("SELECT 1 FROM retrysafe_records FOR UPDATE")
        keeper = store.open_keeper()
        writes: list[Callable[[], object]] = [
            lambda: half.finish(claim, an_outcome()),
            lambda: half.release(claim),
            lambda: half.checkpoint(claim, an_outcome().response),
            lambda: keeper.release([claim]),
        ]
        for write in writes:
            began = time.monotonic()
            with pytest.raises(StoreUnavailable):
                write()
            assert time.monotonic() - began < DEADLINE + SLACK
        assert keeper.renew([claim]) == [True]
        assert isinstance(half.reserve(a_claim()), Found)
        assert store.purge().records == 0
        holder.rollback()
        assert patiently(lambda: half.finish(claim, an_outcome())) is True
        keeper.close()

    def test_an_unfinished_insert_bounds_a_claim(
        self, database: str, holder: "psycopg.Connection[Any]", halves: Halves, opened: Opened
    ) -> None:
        """Somebody inserted the same key and has not committed: the claim gives up, and works later."""
        store = opened(database, DEADLINE)
        half = halves(store)
        claim = a_claim()
        half.reserve(claim)
        holder.execute("CREATE TEMP TABLE one AS SELECT * FROM retrysafe_records")
        half.release(claim)
        holder.execute("INSERT INTO retrysafe_records SELECT * FROM one")
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            half.reserve(a_claim())
        assert time.monotonic() - began < DEADLINE + SLACK
        holder.rollback()
        assert patiently(lambda: half.reserve(a_claim("another"))) == Reserved(1)

    def test_a_locked_table_leaves_no_queue_behind(
        self, database: str, holder: "psycopg.Connection[Any]", halves: Halves, opened: Opened
    ) -> None:
        """No `lock_timeout` of ours can bound that wait, so the server is asked to end what we gave up."""
        half = halves(opened(database, DEADLINE))
        half.reserve(a_claim())
        holder.execute("LOCK TABLE retrysafe_records")
        with pytest.raises(StoreUnavailable, match="timed out"):
            half.look(a_claim().id)
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = %s"
        until = time.monotonic() + PATIENT
        while holder.execute(waiting, [holder.info.dbname]).fetchone() != (0,):
            assert time.monotonic() < until, "it still waits for the lock"
            time.sleep(0.05)
            holder.execute("SELECT pg_stat_clear_snapshot()")

    def test_a_lock_that_is_let_go_is_waited_for(
        self, database: str, holder: "psycopg.Connection[Any]", opened: Opened
    ) -> None:
        """A short one is no trouble: two coroutines, one of which holds the row for a moment."""
        store = opened(database)
        claim = a_claim()
        store.reserve(claim)
        holder.execute("SELECT 1 FROM retrysafe_records FOR UPDATE")

        async def both() -> bool:
            finishing = asyncio.create_task(store.aio.finish(claim, an_outcome()))
            await asyncio.sleep(0.2)
            assert not finishing.done()
            holder.rollback()
            return await finishing

        assert asyncio.run(both()) is True

    @pytest.mark.parametrize("code", ["40001", "40P01"])
    def test_what_passes_is_tried_again(
        self, database: str, halves: Halves, opened: Opened, code: str
    ) -> None:
        """A deadlock and a serialization failure: twice, and then the same operation succeeds."""
        half = halves(opened(database))
        half.reserve(a_claim())
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(_FAILS_TWICE.replace("%", code).encode())
            assert half.reserve(a_claim("other")) == Reserved(1)
            assert connection.execute("SELECT last_value FROM times").fetchone() == (3,)

    def test_what_does_not_pass_is_given_up(self, database: str, halves: Halves, opened: Opened) -> None:
        """After some tries, long before the deadline; the server's reason is told, no value of the row."""
        half = halves(opened(database))
        half.reserve(a_claim())
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(_FAILS_TWICE.replace("%", "40001").replace("< 3", "< 300").encode())
            with pytest.raises(StoreUnavailable, match=r"no luck \(SQLSTATE 40001\)") as told:
                half.reserve(a_claim("other"))
        assert "other" not in str(told.value)


class TestRights:
    """What a role may, and what a database is set to."""

    def test_a_role_that_may_not_make_tables(self, database: str, opened: Opened) -> None:
        """It is told who makes them; and once they are made, it works."""
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("DROP ROLE IF EXISTS clerk")
            connection.execute("CREATE ROLE clerk LOGIN")
            connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
            url = database.replace("postgres@", "clerk@")
            with pytest.raises(
                SchemaMismatch, match=r"retrysafe migrate.*retrysafe sql --dialect postgresql"
            ):
                opened(url).reserve(a_claim())
            opened(database).reserve(a_claim())
            connection.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO clerk")
            assert isinstance(opened(url).reserve(a_claim()), Found)
            connection.execute("DROP OWNED BY clerk")
            connection.execute("DROP ROLE clerk")

    def test_a_read_only_database(self, database: str, halves: Halves, opened: Opened) -> None:
        """Refused when it is opened; and on a connection that was open before, when it is written to."""
        half = halves(opened(database))
        half.reserve(a_claim())
        name = database.rpartition("/")[2]
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on".encode())
        with pytest.raises(StoreUnavailable, match="accepts no writes, its transactions are read-only"):
            halves(opened(database)).look(a_claim().id)
        assert half.reserve(a_claim("on the old connection")) == Reserved(1)

    def test_a_server_that_takes_no_more_writes(self, database: str, halves: Halves, opened: Opened) -> None:
        """As after a failover: such a connection is not used again, and on another it works."""
        half = halves(opened(database))
        half.reserve(a_claim())
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(_FAILS_TWICE.replace("%", "25006").replace("< 3", "< 2").encode())
            pids = "SELECT pid FROM pg_stat_activity WHERE application_name = 'retrysafe' AND datname = %s"
            before = connection.execute(pids, [connection.info.dbname]).fetchall()
            assert half.reserve(a_claim("other")) == Reserved(1)
            until = time.monotonic() + PATIENT
            while set(before) & set(connection.execute(pids, [connection.info.dbname]).fetchall()):
                assert time.monotonic() < until, "it is still open"
                time.sleep(0.02)

    def test_a_table_that_is_changed(self, database: str, halves: Halves, opened: Opened) -> None:
        """Prepared statements are stale then, and are prepared anew."""
        half = halves(opened(database))
        claim = a_claim()
        half.reserve(claim)
        assert half.look(claim.id) is not None
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("ALTER TABLE retrysafe_records ALTER status TYPE bigint")
        assert half.look(claim.id) is not None
        assert half.finish(claim, an_outcome()) is True

    def test_tables_that_vanish(self, database: str, halves: Halves, opened: Opened) -> None:
        """No answer is made up: whoever asks is told what makes them."""
        half = halves(opened(database))
        half.reserve(a_claim())
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("DROP TABLE retrysafe_records")
        with pytest.raises(SchemaMismatch, match="retrysafe migrate"):
            half.reserve(a_claim())

    def test_tables_of_another_version(self, database: str, halves: Halves, opened: Opened) -> None:
        """Refused, and left as they are."""
        opened(database).reserve(a_claim())
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("UPDATE retrysafe_meta SET value = '2' WHERE name = 'schema'")
        with pytest.raises(SchemaMismatch, match="version"):
            halves(opened(database)).reserve(a_claim())

    def test_an_encoding_that_cannot_hold_every_text(self, postgres: PostgresServer, opened: Opened) -> None:
        """Refused at once, and not by the first client whose path has a strange letter."""
        with psycopg.connect(postgres.url("postgres"), autocommit=True) as connection:
            connection.execute("CREATE DATABASE narrow ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
            try:
                with pytest.raises(StoreUnavailable, match="encoding LATIN1"):
                    opened(postgres.url("narrow")).reserve(a_claim())
            finally:
                connection.execute("DROP DATABASE narrow WITH (FORCE)")

    def test_a_search_path_is_honoured(self, database: str, opened: Opened) -> None:
        """Tables are made in the first schema of the role's path, and found there again."""
        name = database.rpartition("/")[2]
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("CREATE SCHEMA ours")
            connection.execute(f"ALTER DATABASE {name} SET search_path = ours, public".encode())
            opened(database).reserve(a_claim())
            assert connection.execute("SELECT count(*) FROM ours.retrysafe_records").fetchone() == (1,)
        assert isinstance(opened(database).reserve(a_claim()), Found)

    @pytest.mark.parametrize(("setting", "expected"), [("off", "on"), ("local", "local")])
    def test_commits_are_durable(self, database: str, opened: Opened, setting: str, expected: str) -> None:
        """Where commits need not reach the disk, ours do; any other choice is left as it is."""
        store = opened(database)
        store.reserve(a_claim())
        name = database.rpartition("/")[2]
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = {setting}".encode())
            connection.execute(_NOTES_DURABILITY)
            store.close()
            claim = a_claim("other")
            store.reserve(claim)
            store.finish(claim, an_outcome())
            noted = connection.execute("SELECT DISTINCT value FROM noted").fetchall()
        assert noted == [(expected,)]


def test_a_path_with_nul(database: str, halves: Halves, opened: Opened) -> None:
    """PostgreSQL's texts cannot hold it; the request is served all the same, and people see its escape."""
    half = halves(opened(database))
    claim = a_claim()._replace(target="/a\0b", scope=(("user", "\0"),), key="\0", request_id="\0é\udce9")
    assert half.reserve(claim) == Reserved(1)
    assert half.finish(claim, an_outcome(b"\0")) is True
    found = half.look(claim.id)
    assert found is not None
    assert (found.record.target, found.record.scope) == ("/a\\x00b", (("user", "\\x00"),))
    assert found.record.response == an_outcome(b"\0").response


def test_a_dropped_store_leaves_nothing_behind(database: str) -> None:
    """Nobody closed it, and still its connections are closed, without a warning."""
    store = PostgresStore(database)
    store.reserve(a_claim())
    asyncio.run(store.aio.reserve(a_claim("other")))
    del store
    with closing(psycopg.connect(database, autocommit=True)) as connection:
        until = time.monotonic() + PATIENT
        others = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'retrysafe' AND datname = %s"
        while connection.execute(others, [connection.info.dbname]).fetchone() != (0,):
            assert time.monotonic() < until, "there are connections left"
            time.sleep(0.05)


_FAILS_TWICE = """
    CREATE SEQUENCE times;
    CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF nextval('times') < 3 THEN RAISE EXCEPTION 'no luck' USING ERRCODE = '%', DETAIL = NEW.key; END IF;
        RETURN NEW; END $$;
    CREATE TRIGGER fail BEFORE INSERT ON retrysafe_records FOR EACH ROW EXECUTE FUNCTION fail();
"""

_NOTES_DURABILITY = """
    CREATE TABLE noted (value text);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO noted VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$;
    CREATE TRIGGER note BEFORE INSERT OR UPDATE ON retrysafe_records FOR EACH ROW EXECUTE FUNCTION note();
"""
