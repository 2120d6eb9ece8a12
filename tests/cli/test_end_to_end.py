"""From a killed worker to the response that its client gets in the end, with the command line between."""

import http.client
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from retrysafe.testing.adapters.client import Reply, settled
from retrysafe.testing.adapters.server import Server
from tests.cli.terminal import run


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Server]:
    server = Server("asgi", f"sqlite:///{tmp_path / 'keys.db'}", tmp_path / "effects", lease=1)
    yield server
    server.kill()


def test_an_unknown_outcome_is_settled(api: Server) -> None:
    """Done is replayed as it was said, a tombstone says that it is one, and what was released runs again."""
    keys = {key: f"label-{key}" for key in ("killed-and-done-1", "killed-and-tomb-1", "killed-and-free-1")}

    def send(key: str) -> Reply:
        return api.post("/crash", key=key, label=keys[key])

    for key in keys:
        with pytest.raises((http.client.HTTPException, OSError)):
            send(key)
        api.revive()
    for key in keys:
        assert settled(partial(send, key)).code == "outcome-unknown"

    listed = json.loads(run("ls", "--state", "abandoned", "--json", store=api.store).out)["records"]
    assert [record["target"] for record in listed] == ["/crash"] * 3
    done, tomb, free = keys
    why = ["--reason", "found in the ledger", "--yes"]
    said = ["--done", "--status", "201", "--body", '{"charge": 7}', "--header", "Location: /charges/7"]
    assert run("resolve", done, *said, *why, store=api.store).code == 0
    assert run("resolve", tomb, "--done", *why, store=api.store).code == 0
    assert run("release", free, *why, store=api.store).code == 0

    replayed = send(done)
    assert (replayed.status, replayed.body) == (201, b'{"charge": 7}')
    assert replayed.header("Location") == "/charges/7"
    assert replayed.header("Content-Type") == "application/json"
    assert replayed.header("Idempotent-Replayed") == "true"
    stone = send(tomb)
    assert (stone.status, stone.body, stone.header("Idempotency-Body")) == (200, b"", "omitted")
    assert [api.effects(label) for label in keys.values()] == [1, 1, 1]
    with pytest.raises((http.client.HTTPException, OSError)):
        send(free)  # it runs, and so it crashes
    api.revive()
    assert api.effects(keys[free]) == 2
