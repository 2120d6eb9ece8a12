"""The Valkey primary and replicas that tests cut off, kill and promote.

Tests of fail-overs use them in `make test`.
"""

import pytest
import redis

from retrysafe.testing.valkey import ValkeyServer
from retrysafe.testing.valkey_replication import ValkeyReplication


@pytest.mark.full
def test_a_fail_over(valkey: ValkeyServer) -> None:
    """What the replica was sent is there when it is promoted; what came while it was cut off is not."""
    del valkey  # only where there is one
    with ValkeyReplication(replicas=2) as servers:
        with redis.Redis.from_url(servers.primary.url(0)) as client:
            client.set("sent", "1")
            assert client.wait(2, 60_000) == 2
            servers.cut()
            client.set("kept", "1")
            assert client.wait(1, 1) == 0
            servers.repair()
            servers.catch_up()
            servers.cut()
            client.set("lost", "1")
        promoted = servers.fail_over()
        assert promoted is servers.primary
        with redis.Redis.from_url(promoted.url(0)) as client:
            assert client.mget("sent", "kept", "lost") == [b"1", b"1", None]
            client.set("name", "value")
            assert client.wait(1, 60_000) == 1  # the other one follows
