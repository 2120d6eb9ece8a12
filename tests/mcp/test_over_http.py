"""Tools of a server that authenticates its clients: over streamable HTTP, with bearer tokens."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from retrysafe.operations.tool_calls.words import REPLAYED
from tests.mcp.connections import Connection, outcome, over_http, served, texts


class Server(NamedTuple):
    url: str
    folder: Path


@pytest.fixture(scope="module", params=["mcp", "fastmcp"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp(request.param)
    with served(request.param, folder) as url:
        yield Server(url, folder)


@pytest.fixture(scope="module")
def alice(server: Server) -> Iterator[Connection]:
    with over_http(server.url, "alice-1", server.folder) as connection:
        yield connection


def test_a_retried_call_happens_once(alice: Connection) -> None:
    """As over stdio, with content, structured content and marks."""
    first = alice.call("charge", order="once", idempotency_key="once")
    again = alice.call("charge", order="once", idempotency_key="once")
    assert alice.ledger().count("charge once 1") == 1
    assert outcome(again) == {**outcome(first), "replayed": True}
    assert again.structured_content == first.structured_content
    assert texts(again) == [*texts(first), REPLAYED]


def test_two_clients_with_the_same_key_do_not_meet(alice: Connection, server: Server) -> None:
    """A key is its client's own: the other client's call is another call, whatever its arguments."""
    with over_http(server.url, "bob-1", server.folder) as bob:
        mine = alice.call("charge", order="alice", idempotency_key="same")
        other = bob.call("charge", order="bob", idempotency_key="same")
        assert not other.is_error
        assert other.structured_content["order"] == "bob"
        again = alice.call("charge", order="alice", idempotency_key="same")
        assert again.structured_content == mine.structured_content


def test_a_renewed_token_is_the_same_client(alice: Connection, server: Server) -> None:
    """A retry after the token has expired and was renewed is still a retry."""
    alice.call("charge", order="renewed", idempotency_key="renewed")
    with over_http(server.url, "alice-2", server.folder) as later:
        again = later.call("charge", order="renewed", idempotency_key="renewed")
    assert outcome(again)["replayed"] is True
    assert alice.ledger().count("charge renewed 1") == 1


def test_clients_of_older_revisions_are_protected_too(alice: Connection, server: Server) -> None:
    """With the handshake and sessions of revisions before 2026, both places for a key work."""
    with over_http(server.url, "alice-1", server.folder, mode="legacy") as older:
        results = [
            (
                older.call("charge", order="older", idempotency_key="older"),
                older.call("refund", "older too", order="older"),
            )
            for _ in range(2)
        ]
    assert [outcome(result)["replayed"] for pair in results for result in pair] == [False, False, True, True]
    assert [line for line in alice.ledger() if "older" in line] == ["charge older 1", "refund older"]


def test_concurrent_duplicates_run_once(alice: Connection, server: Server) -> None:
    """On two connections of one client, as after a reconnect."""
    first = alice.start("hold", "duplicates", name="duplicates")
    alice.wait_for("hold duplicates")
    with over_http(server.url, "alice-1", server.folder) as other:
        assert outcome(other.call("hold", "duplicates", name="duplicates"))["code"] == "in-flight"
        alice.go("duplicates")
        assert texts(first.result(30)) == ["held duplicates"]
        assert texts(other.call("hold", "duplicates", name="duplicates")) == ["held duplicates", REPLAYED]


def test_a_client_that_hangs_up_gets_the_result_later(alice: Connection, server: Server) -> None:
    """The tool goes on without its connection, and what came of it is stored for the retry."""
    with over_http(server.url, "alice-1", server.folder) as gone:
        call = gone.start("hold", "gone", name="gone")
        gone.wait_for("hold gone")
        call.cancel()
    alice.go("gone")
    alice.wait_for("held gone")
    deadline = time.monotonic() + 20
    while outcome(again := alice.call("hold", "gone", name="gone")).get("code") == "in-flight":
        assert time.monotonic() < deadline
    assert texts(again) == ["held gone", REPLAYED]
    assert alice.ledger().count("hold gone") == 1


def test_a_result_that_was_not_stored(alice: Connection) -> None:
    """Where a result is larger than what is stored, the retry is told that it was done, and does nothing."""
    assert len(texts(alice.call("export", "large", size=5000))[0]) == 5000
    again = alice.call("export", "large", size=5000)
    # The client checks results against the output schema, which one without structured content does not fit.
    assert again.is_error
    assert outcome(again) == {"replayed": True, "attempt": 1, "stored": True, "omitted": True}
    assert "do not make the call again with a new key" in texts(again)[0]
    assert alice.ledger().count("export") == 1
