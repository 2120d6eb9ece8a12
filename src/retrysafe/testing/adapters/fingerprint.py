"""Fingerprint: what makes two requests the same one."""

import hashlib
import json

import pytest

from retrysafe.testing.adapters.client import Reply, common
from retrysafe.testing.adapters.server import Server
from retrysafe.testing.adapters.suite import (
    MAX_REQUEST,
    STRICT,
    Servers,
    Suite,
    assert_problem,
    assert_replay,
    covers,
    fresh,
)


def multipart(boundary: str, **files: bytes) -> tuple[list[tuple[str, str]], bytes]:
    """The content type and the body of an upload."""
    pieces = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n".encode()
        + data
        + b"\r\n"
        for name, data in files.items()
    ]
    body = b"".join(pieces) + f"--{boundary}--\r\n".encode()
    return [("Content-Type", f"multipart/form-data; boundary={boundary}")], body


class Fingerprint(Suite):
    @covers(36)
    def test_another_query(self, api: Server, key: str, label: str) -> None:
        """A value in the query is as much part of the request as one in the body."""
        first = api.post("/charges", key=key, label=label, currency="EUR")
        other = api.post("/charges", key=key, label=label, currency="USD")
        assert_problem(other, 422, "key-reused")
        assert_replay(first, api.post("/charges", key=key, label=label, currency="EUR"))
        assert api.effects(label) == 1

    @covers(36)
    def test_another_media_type(self, api: Server, key: str, label: str) -> None:
        """The same bytes as text are another request; another charset parameter is not."""

        def send(content_type: str) -> Reply:
            fields = [("Content-Type", content_type)]
            return api.post("/charges", key=key, body=b"{}", fields=fields, label=label)

        first = send("application/json")
        assert_problem(send("text/plain"), 422, "key-reused")
        assert_replay(first, send("application/json; charset=utf-8"))
        assert api.effects(label) == 1

    @covers(39)
    def test_one_byte_of_an_upload(self, api: Server, key: str, label: str) -> None:
        """Every byte of every file counts."""
        data = bytes(range(256)) * 40
        fields, body = multipart("b1", text=b"hello", file=data)
        first = api.post("/upload", key=key, fields=fields, body=body, label=label)
        assert first.document["parts"][1] == {
            "name": "file",
            "size": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        assert_replay(first, api.post("/upload", key=key, fields=fields, body=body, label=label))
        fields, body = multipart("b1", text=b"hello", file=data[:-1] + b"\x00")
        changed = api.post("/upload", key=key, fields=fields, body=body, label=label)
        assert_problem(changed, 422, "key-reused")
        assert api.effects(label) == 1

    @covers(39)
    def test_another_boundary_is_the_same_upload(self, api: Server, key: str, label: str) -> None:
        """Client libraries draw the boundary anew for every retry: it is not part of the request."""
        fields, body = multipart("b1", file=b"same")
        first = api.post("/upload", key=key, fields=fields, body=body, label=label)
        fields, body = multipart("b2", file=b"same")
        assert_replay(first, api.post("/upload", key=key, fields=fields, body=body, label=label))
        assert api.effects(label) == 1

    @covers(40)
    @pytest.mark.parametrize("fingerprint", ["raw", "json"])
    def test_the_order_of_json_members(self, serve: Servers, key: str, label: str, fingerprint: str) -> None:
        """By default bytes are compared; canonical JSON (RFC 8785) takes equal values for equal."""
        api = serve() if fingerprint == "raw" else serve(fingerprint="json")
        fields = [("Content-Type", "application/json")]

        def send(body: bytes) -> Reply:
            return api.post("/charges", key=key, body=body, fields=fields, label=label)

        first = send(b'{"amount": 1, "note": "\\u00e9"}')
        assert first.status == 201
        other = send('{"note":"é",\n"amount":1.0}'.encode())
        if fingerprint == "raw":
            assert_problem(other, 422, "key-reused")
        else:
            assert_replay(first, other)
        assert_problem(send(b'{"amount": 2, "note": "\\u00e9"}'), 422, "key-reused")
        assert api.effects(label) == 1

    @covers(43, 46)
    def test_a_body_over_the_limit(self, serve: Servers, key: str, label: str) -> None:
        """Refused by its announced length, before it is sent; the key is free afterwards."""
        api = serve(**STRICT)
        fields = [("Content-Length", str(MAX_REQUEST + 1)), ("Expect", "100-continue")]
        with api.connect() as connection:
            connection.head("POST", f"/charges?label={label}", common(key, "alice", fields))
            assert_problem(connection.reply(), 413, "body-too-large")
        assert api.effects(label) == 0
        at_the_limit = api.post("/charges", key=key, body=b"." * MAX_REQUEST, label=label)
        assert at_the_limit.status == 201
        assert not at_the_limit.replayed

    @covers(43)
    def test_a_body_over_the_limit_without_a_length(self, serve: Servers, key: str, label: str) -> None:
        """A chunked body says nothing about its length: it is counted, and there is one response."""
        api = serve(**STRICT)
        with api.connect() as connection:
            fields = common(key, "alice", [("Transfer-Encoding", "chunked")])
            connection.head("POST", f"/charges?label={label}", fields)
            for _ in range(4):
                connection.chunk(b"." * 400)
            reply = connection.reply()
        assert_problem(reply, 413, "body-too-large")
        assert api.effects(label) == 0
        assert api.post("/charges", key=key, label=label).status == 201

    @covers(43)
    def test_a_chunked_body_under_the_limit(self, serve: Servers, key: str, label: str) -> None:
        """How the bytes were cut does not matter: chunked or not, it is the same request."""
        api = serve(**STRICT)
        body = json.dumps({"label": label, "padding": "." * 500}).encode()
        with api.connect() as connection:
            fields = common(key, "alice", [("Transfer-Encoding", "chunked")])
            connection.head("POST", "/charges", fields)
            for start in range(0, len(body), 100):
                connection.chunk(body[start : start + 100])
            connection.chunk(b"")
            first = connection.reply()
        assert first.status == 201
        assert_replay(first, api.post("/charges", key=key, body=body))
        assert api.effects(label) == 1

    @covers(43)
    def test_the_handler_gets_every_byte(self, api: Server, label: str) -> None:
        """A body that was read for its fingerprint, and spooled, reaches the handler unchanged."""
        data = bytes(range(256)) * 4096 * 3
        fields, body = multipart("b1", file=data)
        key = fresh()
        reply = api.post("/upload", key=key, fields=fields, body=body, label=label)
        assert reply.document["parts"][0]["sha256"] == hashlib.sha256(data).hexdigest()
        assert_replay(reply, api.post("/upload", key=key, fields=fields, body=body, label=label))
