"""The Valkey server that tests have: it is their own, and can be treated badly."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis

from retrysafe.testing.adapters.client import until
from retrysafe.testing.valkey import ValkeyServer


def test_every_database_is_empty(valkey: ValkeyServer) -> None:
    """Two tests that use the same name do not meet."""
    one, other = (redis.Redis.from_url(valkey.new_database()) for _ in range(2))
    with one, other:
        one.set("name", "value")
        assert (one.get("name"), other.get("name")) == (b"value", None)


def test_only_its_own_clients_are_served(valkey: ValkeyServer) -> None:
    """A client that was meant for another server, which had this port before, does nothing here."""
    with (
        redis.Redis(port=valkey.port) as stranger,
        pytest.raises(redis.AuthenticationError, match="authenticate"),
    ):
        stranger.ping()


def test_it_can_be_killed_and_frozen() -> None:
    """Killed, it is gone with what it held; frozen, it is silent until it thaws."""
    with ValkeyServer() as server, redis.Redis.from_url(server.new_database(), socket_timeout=0.1) as client:
        client.set("name", "value")
        server.freeze()
        with pytest.raises(redis.TimeoutError):
            client.get("name")
        server.thaw()
        assert eventually(client) == b"value"
        server.kill()
        with pytest.raises(redis.ConnectionError):
            client.get("name")
        server.start()
        assert eventually(client) is None


def eventually(client: redis.Redis) -> object:
    """What the server responds, once it is awake."""
    patience = time.monotonic() + 60
    while True:
        try:
            return client.get("name")
        except redis.TimeoutError:
            assert time.monotonic() < patience, "the server stays silent"


def test_a_setting_that_it_refuses() -> None:
    """It says what the server's log says, and nothing is left running."""
    with pytest.raises(RuntimeError, match=r"did not start(?s:.)*maxmemory-policy"):
        ValkeyServer(maxmemory_policy="forgetful")


_OWNER = """
import sys
from retrysafe.testing.valkey import ValkeyServer
server = ValkeyServer()
if "frozen" in sys.argv:
    server.freeze()
print(server.log_file.parent, server.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("state", ["running", "frozen"])
def test_it_does_not_outlive_its_owner(state: str) -> None:
    """A test run that is killed leaves neither a server nor its folder."""
    command = [sys.executable, "-c", _OWNER, state]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        folder, pid = owner.stdout.readline().split()
        assert Path(folder, "pid").exists()
        owner.kill()
    until(lambda: not Path(folder).exists() and not Path(f"/proc/{pid}").exists())
