"""A MariaDB server in trouble, or one that does not want us: what leaves the store, and when."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import quote, urlsplit

import pymysql
import pytest

from retrysafe import stores
from retrysafe._core.model import Found, Reserved
from retrysafe.errors import SchemaMismatch, StoreUnavailable
from retrysafe.stores.contract import Store
from retrysafe.stores.queue import Row
from retrysafe.stores.sql.mysql.connect import Address
from retrysafe.stores.sql.mysql.retry import trouble
from retrysafe.stores.sql.mysql.session import MySQLSession
from retrysafe.stores.sql.schema import plan
from retrysafe.testing.adapters.client import until
from retrysafe.testing.conversations.mysql import MySQLConversation
from retrysafe.testing.mariadb import MariaDBServer
from retrysafe.testing.proxy import Proxy
from retrysafe.testing.stores import a_claim, an_outcome
from tests.stores.halves import DEADLINE, SLACK, Both, Halves, Opened, patiently
from tests.stores.rows import PATIENT
from tests.stores.rows_mysql import connect

Connection: TypeAlias = "pymysql.Connection[Any]"


@pytest.fixture(scope="module")
def battered(mariadb: MariaDBServer) -> Iterator[MariaDBServer]:
    """A server of these tests' own, because they stop and freeze it."""
    del mariadb  # only where there is one
    with MariaDBServer(innodb_flush_method="nosync") as server:  # it is killed, but its machine is not
        yield server


@pytest.fixture
def url(mariadb: MariaDBServer) -> Iterator[str]:
    url = mariadb.new_database()
    yield url
    mariadb.drop_database(url)


@pytest.fixture
def other(url: str) -> Iterator[Connection]:
    """Another connection to the same database."""
    with closing(connect(url)) as connection:
        yield connection


def execute(connection: Connection, sql: str, arguments: object = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, arguments)
        return list(cursor.fetchall())


class TestServer:
    """It dies, comes back, or says nothing."""

    def test_a_restart(self, battered: MariaDBServer, both: Both, opened: Opened) -> None:
        """While the server is gone callers are told at once, and without the password.  When it is back,
        connections that died are no trouble: another is opened at once."""
        url = battered.new_database()
        password = url.partition("@")[0].rpartition(":")[2]
        idle, busy = both(opened(url)), both(opened(url))
        claims = [a_claim(f"key {n}") for n in range(2)]
        for half, claim in zip(idle, claims, strict=True):
            half.reserve(claim)
        for half in busy:
            half.look(claims[0].id)
        battered.kill()
        try:
            for half in busy:
                with pytest.raises(StoreUnavailable, match="database") as told:
                    half.reserve(a_claim("other"))
                assert password not in str(told.value)
        finally:
            battered.start()
        for half, claim in zip(idle, claims, strict=True):
            assert half.finish(claim, an_outcome()) is True
        for number, half in enumerate(busy):
            assert half.reserve(a_claim(f"another {number}")) == Reserved(1)

    def test_a_frozen_server(self, battered: MariaDBServer, halves: Halves, opened: Opened) -> None:
        """A caller is told within the deadline, on a connection that is open or on one to be opened; and what
        the server says when it thaws is no other caller's result."""
        half = halves(opened(battered.new_database(), DEADLINE))
        patiently(lambda: half.reserve(a_claim()))
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

    def test_a_server_that_is_read_only(
        self, battered: MariaDBServer, halves: Halves, opened: Opened
    ) -> None:
        """As a replica is: refused when it is opened, though this user might write all the same."""
        url = battered.new_database()
        with closing(connect(url)) as connection:
            execute(connection, "SET GLOBAL read_only = 1")
            try:
                with pytest.raises(StoreUnavailable, match=r"accepts no writes.*the address of the primary"):
                    halves(opened(url)).look(a_claim().id)
            finally:
                execute(connection, "SET GLOBAL read_only = 0")
        assert halves(opened(url)).reserve(a_claim()) == Reserved(1)

    def test_too_many_connections(self, battered: MariaDBServer, both: Both, opened: Opened) -> None:
        """It says so at once, and nothing was done."""
        url = battered.new_database()
        opened(url).reserve(a_claim())
        user = f"few_{os.urandom(4).hex()}"
        with closing(connect(url)) as connection:
            execute(
                connection,
                f"GRANT ALL ON *.* TO {user}@'127.0.0.1' IDENTIFIED BY 'few' WITH MAX_USER_CONNECTIONS 1",
            )
            few = f"mysql://{user}:few@{url.partition('@')[2]}"
            with closing(connect(few)):
                for half in both(opened(few)):
                    with pytest.raises(StoreUnavailable, match="cannot connect"):
                        half.reserve(a_claim("other"))


class TestLocks:
    """Another transaction holds a lock and does not end."""

    def test_a_locked_row_bounds_every_operation(
        self, url: str, other: Connection, halves: Halves, opened: Opened
    ) -> None:
        """Writes give up; reads and renewals do not wait."""
        store = opened(url, DEADLINE)
        half = halves(store)
        claim = a_claim()
        patiently(lambda: half.reserve(claim))
        other.begin()
        execute(other, "SELECT 1 FROM retrysafe_records FOR UPDATE")
        keeper = store.open_keeper()
        writes: list[Callable[[], object]] = [
            lambda: half.finish(claim, an_outcome()),
            lambda: half.release(claim),
            lambda: half.checkpoint(claim, an_outcome().response),
            lambda: half.take_over(a_claim(), claim.token, "failed"),
            lambda: keeper.release([claim]),
        ]
        for write in writes:
            began = time.monotonic()
            with pytest.raises(StoreUnavailable):
                write()
            assert time.monotonic() - began < DEADLINE + SLACK
        assert keeper.renew([claim]) == [True]
        assert isinstance(patiently(lambda: half.reserve(a_claim())), Found)
        assert store.purge().records == 0
        other.rollback()
        assert patiently(lambda: half.finish(claim, an_outcome())) is True
        keeper.close()

    def test_an_unfinished_insert_bounds_a_claim(
        self, url: str, other: Connection, halves: Halves, opened: Opened
    ) -> None:
        """Another transaction inserted the same key and has not committed: the claim gives up, all other
        claims go on, and it works later."""
        store = opened(url, DEADLINE)
        half = halves(store)
        claim = a_claim()
        patiently(lambda: half.reserve(claim))
        execute(other, "CREATE TEMPORARY TABLE one AS SELECT * FROM retrysafe_records")
        half.release(claim)
        other.begin()
        execute(other, "INSERT INTO retrysafe_records SELECT * FROM one")
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="another transaction is storing"):
            half.reserve(a_claim())
        assert time.monotonic() - began < DEADLINE + SLACK
        assert half.look(claim.id) is None, "what is not committed is not shown"
        assert half.reserve(a_claim("another")) == Reserved(1)
        other.rollback()
        assert patiently(lambda: half.reserve(a_claim())) == Reserved(1)

    def test_a_lock_that_is_released_is_waited_for(self, url: str, other: Connection, opened: Opened) -> None:
        """A short one is no trouble."""
        store = opened(url)
        claim = a_claim()
        store.reserve(claim)
        other.begin()
        execute(other, "SELECT 1 FROM retrysafe_records FOR UPDATE")

        async def finishing() -> bool:
            task = asyncio.create_task(store.aio.finish(claim, an_outcome()))
            await asyncio.sleep(0.2)
            assert not task.done()
            other.rollback()
            return await task

        assert asyncio.run(finishing()) is True

    @pytest.mark.parametrize(
        "code",
        [pytest.param(1205, marks=pytest.mark.full), 1213, pytest.param(1020, marks=pytest.mark.full)],
    )
    def test_what_passes_is_tried_again(
        self, url: str, other: Connection, halves: Halves, opened: Opened, code: int
    ) -> None:
        """A lock timeout, a deadlock, a row that has changed: twice, and then the same operation succeeds."""
        half = halves(opened(url))
        half.reserve(a_claim())
        _fail(other, code, times=2)
        assert half.reserve(a_claim("other")) == Reserved(1)
        assert execute(other, "SELECT number FROM times") == [(3,)]

    def test_what_does_not_pass_is_given_up(
        self, url: str, other: Connection, halves: Halves, opened: Opened
    ) -> None:
        """After some tries, long before the deadline; the server's reason is told, no value of the row."""
        half = halves(opened(url))
        half.reserve(a_claim())
        _fail(other, 1213, times=300)
        with pytest.raises(StoreUnavailable, match=r"no luck \(error 1213\)") as told:
            half.reserve(a_claim("other"))
        assert "other" not in str(told.value)

    def test_deadlocks_reach_no_caller(self, url: str, opened: Opened) -> None:
        """Eight stores, as many processes, which finish, release, take over and reserve the same few keys,
        while another one locks them in the other order."""
        all_stores = [opened(url) for _ in range(8)]
        all_stores[0].look(a_claim().id)
        over = threading.Event()

        def disturb() -> int:
            with closing(connect(url)) as connection:
                found = 0
                while not over.is_set():
                    try:
                        connection.begin()
                        for order in ("DESC", "ASC"):
                            execute(
                                connection, f"SELECT id FROM retrysafe_records ORDER BY id {order} FOR UPDATE"
                            )
                        found += 1
                    except pymysql.OperationalError:  # a deadlock, as it was meant to be
                        found += 1
                    finally:
                        connection.rollback()
                return found

        def work(store: Store, turn: int) -> None:
            claim = a_claim(f"key {turn % 6}")
            if isinstance(store.reserve(claim), Reserved):
                store.checkpoint(claim, an_outcome().response)
                if turn % 2:
                    assert store.finish(claim, an_outcome()) is True
                    with closing(connect(url)) as connection:
                        execute(connection, "DELETE FROM retrysafe_records WHERE id = %s", [claim.id])
                else:
                    store.release(claim)

        with ThreadPoolExecutor(33) as pool:
            disturbing = pool.submit(disturb)
            try:
                turns = [pool.submit(work, all_stores[turn % 8], turn) for turn in range(160)]
                for turn in turns:
                    turn.result(3 * PATIENT)
            finally:
                over.set()
            assert disturbing.result(PATIENT) >= 0


def _fail(connection: Connection, code: int, times: int) -> None:
    """Have so many inserts fail with this error.  The table of turns is no transaction's."""
    execute(connection, "CREATE TABLE times (number INT) ENGINE = Aria TRANSACTIONAL = 0")
    execute(connection, "INSERT INTO times VALUES (0)")
    execute(
        connection,
        "CREATE TRIGGER unlucky BEFORE INSERT ON retrysafe_records FOR EACH ROW BEGIN "
        "UPDATE times SET number = number + 1; "
        f"IF (SELECT number FROM times) <= {times} THEN "
        f"SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = 'no luck'; END IF; END",
    )


class TestConnections:
    """They are cut, and no result is taken for that of another call."""

    @pytest.fixture
    def proxy(self, mariadb: MariaDBServer) -> Iterator[Proxy]:
        with Proxy(mariadb.port, MySQLConversation) as proxy:
            yield proxy

    @pytest.mark.parametrize("statement", ["INSERT INTO retrysafe_records", "UPDATE .* AS free"])
    def test_an_acknowledgement_that_is_lost(
        self, url: str, proxy: Proxy, halves: Halves, opened: Opened, statement: str
    ) -> None:
        """Of a reservation (F11) and of a completion (F12): the same call, said again on another connection,
        is recognised."""
        half = halves(opened(proxy.through(url)))
        half.look(a_claim().id)
        lost = proxy.lose_response(statement)
        claim = a_claim()
        assert half.reserve(claim) == Reserved(1)
        assert half.finish(claim, an_outcome()) is True
        assert lost.sprung
        found = half.look(claim.id)
        assert found is not None
        assert (found.record.state, found.record.attempt) == ("completed", 1)

    def test_a_black_hole(self, url: str, proxy: Proxy, halves: Halves, opened: Opened) -> None:
        """Nothing arrives any more, and no connection is closed: callers are told within the deadline
        (F14)."""
        half = halves(opened(proxy.through(url), DEADLINE))
        patiently(lambda: half.look(a_claim().id))
        proxy.swallow()
        for key in ("first", "second"):
            began = time.monotonic()
            with pytest.raises(StoreUnavailable, match="timed out"):
                half.reserve(a_claim(key))
            assert time.monotonic() - began < DEADLINE + SLACK
        proxy.restore()
        assert patiently(lambda: half.reserve(a_claim("third"))) == Reserved(1)

    def test_connections_that_are_killed(
        self, url: str, other: Connection, halves: Halves, opened: Opened
    ) -> None:
        """By an operator, while they are idle: no caller notices."""
        half = halves(opened(url))
        half.reserve(a_claim())
        mine = other.thread_id()  # type: ignore[no-untyped-call]
        name = url.rpartition("/")[2]
        sql = "SELECT id FROM information_schema.PROCESSLIST WHERE db = %s AND id <> %s"
        for (thread,) in execute(other, sql, [name, mine]):
            execute(other, f"KILL {thread}")
        assert half.reserve(a_claim("other")) == Reserved(1)

    def test_a_cancelled_coroutine_leaves_no_result_for_another(self, url: str, opened: Opened) -> None:
        """Cancelled at every moment, while others ask for keys of their own: each gets its own result."""
        store = opened(url)
        claims = [a_claim(f"key {number}") for number in range(20)]
        for claim in claims:
            store.reserve(claim)

        async def ask() -> None:
            for turn in range(60):
                tasks = [asyncio.create_task(store.aio.look(claim.id)) for claim in claims]
                for _ in range(turn % 12):
                    await asyncio.sleep(0)
                for task in tasks[::2]:
                    task.cancel()
                found = await asyncio.gather(*tasks[1::2])
                assert [one and one.record.token for one in found] == [each.token for each in claims[1::2]]

        asyncio.run(ask())


class TestRights:
    """What a user may, and what a database has."""

    def test_a_user_who_may_not_make_tables(self, url: str, other: Connection, opened: Opened) -> None:
        """It is told who makes them; and once they are made, it works."""
        user, database = f"clerk_{os.urandom(4).hex()}", url.rpartition("/")[2]
        execute(other, f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'clerk'")
        execute(other, f"GRANT SELECT, INSERT, UPDATE, DELETE ON {database}.* TO {user}@'127.0.0.1'")
        try:
            theirs = f"mysql://{user}:clerk@{url.partition('@')[2]}"
            with pytest.raises(SchemaMismatch, match=r"retrysafe migrate.*retrysafe sql --dialect mysql"):
                opened(theirs).reserve(a_claim())
            opened(url).reserve(a_claim())
            assert isinstance(opened(theirs).reserve(a_claim()), Found)
        finally:
            execute(other, f"DROP USER {user}@'127.0.0.1'")

    def test_a_wrong_password(self, url: str, both: Both, opened: Opened) -> None:
        """It is refused, and not repeated."""
        for half in both(opened(url.replace("@", "hunter2@"))):
            with pytest.raises(StoreUnavailable, match="Access denied") as told:
                half.look(a_claim().id)
            assert "hunter2" not in str(told.value)

    def test_tables_that_vanish(self, url: str, other: Connection, halves: Halves, opened: Opened) -> None:
        """No result is made up: callers are told what makes them."""
        half = halves(opened(url))
        half.reserve(a_claim())
        execute(other, "DROP TABLE retrysafe_records")
        with pytest.raises(SchemaMismatch, match="retrysafe migrate"):
            half.reserve(a_claim())

    def test_tables_of_another_version(
        self, url: str, other: Connection, halves: Halves, opened: Opened
    ) -> None:
        """Refused, and left as they are."""
        opened(url).reserve(a_claim())
        execute(other, "UPDATE retrysafe_meta SET value = '7' WHERE name = 'schema'")
        with pytest.raises(SchemaMismatch, match="schema version 7"):
            halves(opened(url)).reserve(a_claim())

    def test_a_creation_that_broke_off(self, url: str, other: Connection, both: Both, opened: Opened) -> None:
        """After any of its statements, each of which the server commits by itself: the next process goes
        on."""
        first, second = both(opened(url))
        first.reserve(a_claim())
        for kept in range(1, 5):
            _keep(other, kept)
            fresh = stores.open(url, deadline=PATIENT)
            assert fresh.reserve(a_claim(f"key {kept}")) == Reserved(1)
            fresh.close()
        assert second.reserve(a_claim("last")) == Reserved(1)

    def test_a_unix_socket(self, mariadb: MariaDBServer, url: str, both: Both, opened: Opened) -> None:
        """Named in the address."""
        user, _, rest = url.partition("@")
        local = f"{user}@/{rest.rpartition('/')[2]}?unix_socket={mariadb.socket}"
        for number, half in enumerate(both(opened(local))):
            assert half.reserve(a_claim(f"key {number}")) == Reserved(1)

    def test_tls_that_the_server_has_not(self, url: str, both: Both, opened: Opened) -> None:
        """Where it is required, nothing is sent without it."""
        for half in both(opened(f"{url}?ssl-mode=required")):
            with pytest.raises(StoreUnavailable, match="cannot connect"):
                half.look(a_claim().id)


def _keep(connection: Connection, number: int) -> None:
    """So many of the tables, as if their creation had broken off then."""
    tables = ("meta", "audit", "verdicts", "routes", "records")
    execute(connection, "DELETE FROM retrysafe_meta")
    for table in tables[number:]:
        execute(connection, f"DROP TABLE IF EXISTS retrysafe_{table}")


def test_tables_that_another_process_is_making(url: str, other: Connection, opened: Opened) -> None:
    """One that looked before they were complete does not take them for removed."""
    opened(url).look(a_claim().id)
    _keep(other, 1)
    made: list[object] = []
    with closing(MySQLSession.open(Address.parse(url, PATIENT))) as session:

        def ask(name: str) -> Sequence[Row]:
            rows = session.query(name)
            if name == "existing_tables" and not made:
                made.append(opened(url).look(a_claim().id))
            return rows

        assert plan(ask, "mysql").statements == []


@pytest.mark.parametrize("setting", ["sql_select_limit = 1", "max_join_size = 1"])
def test_limits_of_the_server(battered: MariaDBServer, opened: Opened, setting: str) -> None:
    """What it sets for the queries of people does not bound the store's."""
    name = setting.partition(" ")[0]
    url = battered.new_database()
    with closing(connect(url)) as connection:
        [(before,)] = execute(connection, f"SELECT @@GLOBAL.{name}")
        execute(connection, f"SET GLOBAL {setting}")
        try:
            store = opened(url)
            claims = [a_claim("one"), a_claim("two")]
            assert [store.reserve(claim) for claim in claims] == [Reserved(1), Reserved(1)]
            keeper = store.open_keeper()
            assert keeper.renew(claims) == [True, True]
            keeper.close()
        finally:
            execute(connection, f"SET GLOBAL {name} = %s", [before])


def test_a_purge_beside_a_locked_record(url: str, other: Connection, opened: Opened) -> None:
    """The few rows of a small table are not all read, so one that is locked is not waited for."""
    store = opened(url, DEADLINE)
    running = a_claim("running")
    for claim in [running, *(a_claim(f"running {n}") for n in range(5))]:
        patiently(partial(store.reserve, claim))
    expired = [a_claim(f"expired {n}")._replace(lease=0.001, retention=0.001) for n in range(3)]
    for claim in expired:
        patiently(partial(store.reserve, claim))
    until(lambda: all(store.look(claim.id) is None for claim in expired))
    other.begin()
    execute(other, "SELECT 1 FROM retrysafe_records WHERE id = %s FOR UPDATE", [running.id])
    assert store.purge().records == 3
    other.rollback()


def test_a_password_of_any_characters(url: str, other: Connection, both: Both, opened: Opened) -> None:
    """It is percent-encoded in the address, and sent in UTF-8, as it was set."""
    parts = urlsplit(url)
    password = "p%äss @:/?#€'\\"
    execute(other, "CREATE USER odd@'127.0.0.1' IDENTIFIED BY %s", [password])
    try:
        execute(other, f"GRANT ALL ON {parts.path[1:]}.* TO odd@'127.0.0.1'")
        address = f"mysql://odd:{quote(password, safe='')}@127.0.0.1:{parts.port}{parts.path}"
        for half in both(opened(address)):
            assert half.look(a_claim().id) is None
    finally:
        execute(other, "DROP USER odd@'127.0.0.1'")


def test_values_that_do_not_fit_are_refused(url: str, other: Connection, both: Both, opened: Opened) -> None:
    """And not cut off, whatever the server's mode: long keys stay different, and what no column can hold is
    an error that quotes nothing."""
    execute(other, "SET GLOBAL sql_mode = ''")
    try:
        for half in both(opened(url)):
            long = [a_claim(f"{half}{'k' * 70_000}{end}") for end in "ab"]
            for claim in long:
                assert half.reserve(claim) == Reserved(1)
            for claim in long:
                found = half.look(claim.id)
                assert found is not None
                assert found.record.key == claim.key
            with pytest.raises(StoreUnavailable, match="does not fit") as told:
                half.reserve(a_claim("odd")._replace(id=b"x" * 33))
            assert "xxx" not in str(told.value)
    finally:
        execute(other, "SET GLOBAL sql_mode = DEFAULT")


def test_a_statement_that_is_too_large(battered: MariaDBServer, both: Both, opened: Opened) -> None:
    """It is refused before the server hangs up on it, and the others of its batch are served."""
    url = battered.new_database()
    with closing(connect(url)) as connection:
        execute(connection, "SET GLOBAL max_allowed_packet = 1048576")
        try:
            for half in both(opened(url)):
                claim = a_claim(f"key of {half}")
                half.reserve(claim)
                with pytest.raises(StoreUnavailable, match="max_allowed_packet, 1048576 bytes"):
                    half.finish(claim, an_outcome(b"x" * 600_000))
                assert half.finish(claim, an_outcome()) is True
        finally:
            execute(connection, "SET GLOBAL max_allowed_packet = DEFAULT")


def test_errors_of_drivers_are_alike() -> None:
    """Each has the number and the words; what has none is a lost connection."""
    deadlock = trouble(pymysql.OperationalError(1213, "Deadlock found\nand more"))
    assert (deadlock.passing, deadlock.disconnected) == (True, False)
    assert deadlock.described == "Deadlock found (error 1213)"
    quoting = trouble(pymysql.IntegrityError(1062, "Duplicate entry 'hunter2' for key"))
    assert "hunter2" not in quoting.described
    gone = trouble(pymysql.OperationalError(2006, "MySQL server has gone away"))
    assert (gone.passing, gone.disconnected) == (False, True)
    assert trouble(ConnectionResetError("reset")).disconnected
