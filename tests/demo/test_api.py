"""The payments API by itself, as a process: what it accepts, and what it refuses."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from retrysafe.demo.server import Server, ServerFailed


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path, lease=30.0) as server:
        yield server


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """For requests that are refused, and leave nothing behind."""
    with Server(tmp_path_factory.mktemp("shared"), lease=30.0) as server:
        yield server


def send(
    server: Server, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, object]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request(
            method, path, body, {name.replace("_", "-"): text for name, text in headers.items()}
        )
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@pytest.mark.parametrize(
    "form",
    [
        b"",
        b"order=tea",
        b"cents=290",
        b"order=tea&cents=",
        b"order=tea&cents=2.90",
        b"order=tea&cents=0",
        b"order=tea&cents=-1",
        b"order=tea&cents=290&seconds=61",
        b"order=tea&cents=290&seconds=nan",
        b"order=\xff&cents=\xff",
    ],
)
def test_an_invalid_form_is_refused(shared: Server, form: bytes) -> None:
    """The error says what was expected, and no money is taken."""
    status, document = send(shared, "POST", "/payments", form, X_Customer="ada")
    assert status == 400
    assert "order=coffee&cents=320" in str(document)
    assert shared.ledger.charges() == []


def test_a_payment_needs_a_customer(shared: Server) -> None:
    """Without the header it is refused, with a key or without."""
    for headers in ({}, {"Idempotency_Key": "a-key"}):
        assert send(shared, "POST", "/payments", b"order=tea&cents=290", **headers)[0] == 400
    assert shared.ledger.charges() == []


def test_other_paths_are_not_found(shared: Server) -> None:
    """The error names the paths that exist."""
    assert send(shared, "GET", "/payments") == (404, {"error": "there are POST /payments and GET /ledger"})


def test_the_ledger_survives_a_kill(server: Server) -> None:
    """And so do the keys: after a restart the same request gets the same receipt and takes no money."""
    first = send(
        server, "POST", "/payments", b"order=tea&cents=290", X_Customer="ada", Idempotency_Key="tea-1"
    )
    server.kill()
    server.restart()
    assert [charge.order for charge in server.ledger.charges()] == ["tea"]
    again = send(
        server, "POST", "/payments", b"order=tea&cents=290", X_Customer="ada", Idempotency_Key="tea-1"
    )
    assert again == first
    assert len(server.ledger.charges()) == 1


def test_a_server_that_does_not_start(tmp_path: Path) -> None:
    """What it wrote is in the error."""
    with (
        pytest.raises(ServerFailed, match="it has moved"),
        Server(tmp_path, lease=30.0, program=("-c", "raise SystemExit('it has moved')")),
    ):
        pass
