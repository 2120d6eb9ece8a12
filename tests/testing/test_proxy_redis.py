"""The bad connection where Redis or Valkey is spoken: it meets commands and scripts, and their replies."""

from collections.abc import Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from retrysafe.testing.conversations.redis import RedisConversation
from retrysafe.testing.proxy import Proxy
from retrysafe.testing.valkey import ValkeyServer

SCRIPT = "return redis.call('RPUSH', KEYS[1], ARGV[1])"


@pytest.fixture
def proxy(valkey: ValkeyServer) -> Iterator[Proxy]:
    with Proxy(valkey.port, RedisConversation) as proxy:
        yield proxy


@pytest.fixture
def database(valkey: ValkeyServer) -> str:
    return valkey.new_database()


@pytest.fixture(params=[2, 3])
def client(request: pytest.FixtureRequest, proxy: Proxy, database: str) -> "Iterator[redis.Redis]":
    """In both versions of the protocol, and without retries of its own."""
    with redis.Redis.from_url(
        proxy.through(database), protocol=request.param, retry=Retry(NoBackoff(), 0)
    ) as client:
        yield client


def marks(database: str) -> list[object]:
    with redis.Redis.from_url(database) as direct:
        return list(direct.lrange("marks", 0, -1))


def test_a_good_connection(client: "redis.Redis", database: str) -> None:
    """Unless told otherwise it is not there: large values, errors, nested replies and pipelines."""
    large = b"x" * 3_000_000
    client.set("large", large)
    assert client.get("large") == large
    with pytest.raises(redis.ResponseError):
        client.lrange("large", 0, -1)
    client.hset("table", mapping={"a": "1", "b": "2"})
    assert client.hgetall("table") == {b"a": b"1", b"b": b"2"}
    assert client.get("nothing") is None
    with client.pipeline(transaction=True) as pipe:
        pipe.rpush("marks", "one")
        pipe.rpush("marks", "two")
        pipe.lrange("marks", 0, -1)
        assert pipe.execute() == [1, 2, [b"one", b"two"]]
    assert client.config_get("databases")


@pytest.mark.parametrize(
    ("action", "left"),
    [("cut_before", [b"first"]), ("lose_response", [b"first", b"second"])],
)
def test_at_a_command(
    action: str, left: list[bytes], client: "redis.Redis", proxy: Proxy, database: str
) -> None:
    """In the middle of a pipeline: what comes after the command is not performed either way."""
    trap = getattr(proxy, action)("^RPUSH marks second")
    with client.pipeline(transaction=False) as pipe:
        for mark in ("first", "second", "third"):
            pipe.rpush("marks", mark)
        with pytest.raises(redis.ConnectionError):
            pipe.execute()
    trap.wait()
    assert marks(database) == left
    assert client.rpush("marks", "again") == len(left) + 1


def test_at_a_script(client: "redis.Redis", proxy: Proxy, database: str) -> None:
    """A script is met by its text, although only its digest is sent."""
    script = client.register_script(SCRIPT)
    script(keys=["marks"], args=["first"])
    trap = proxy.lose_response("EVALSHA .*RPUSH.* second$")
    with pytest.raises(redis.ConnectionError):
        script(keys=["marks"], args=["second"])
    trap.wait()
    assert marks(database) == [b"first", b"second"]
