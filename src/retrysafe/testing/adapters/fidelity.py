"""Replay fidelity: the same representation, in a message of its own."""

import gzip
import json

import pytest

from retrysafe.testing.adapters.client import Reply, eventually
from retrysafe.testing.adapters.server import Server
from retrysafe.testing.adapters.suite import (
    MAX_RESPONSE,
    STRICT,
    Servers,
    Suite,
    assert_problem,
    assert_replay,
    covers,
    fresh,
)


class Fidelity(Suite):
    @covers(53)
    def test_the_marker(self, api: Server, key: str, label: str) -> None:
        """Said of replays, and not of the first response."""
        first = api.post("/charges", key=key, label=label)
        assert first.header("Idempotent-Replayed") in (None, "false")
        for _ in range(2):
            retry = api.post("/charges", key=key, label=label)
            assert retry.header("Idempotent-Replayed") == "true"

    @covers(53)
    def test_a_marker_that_the_client_sends_is_nothing(self, api: Server, label: str) -> None:
        """A request cannot make a first response look like a replay."""
        fields = [("Idempotent-Replayed", "true")]
        reply = api.post("/charges", key=fresh(), fields=fields, label=label)
        assert not reply.replayed

    @covers(17)
    def test_headers_of_the_representation(self, api: Server, key: str, label: str) -> None:
        """`Location`, `ETag`, `Content-Type`, and all that `Link` says."""
        first = api.post("/charges", key=key, label=label)
        retry = api.post("/charges", key=key, label=label)
        for name in ("Location", "ETag", "Content-Type"):
            assert first.header(name) is not None
            assert retry.header(name) == first.header(name)
        assert ", ".join(first.headers("Link")).count("rel=") == 2
        assert retry.headers("Link") == first.headers("Link")

    @covers(17)
    def test_a_header_that_is_there_twice(self, api: Server, key: str, label: str) -> None:
        """Both `Link` fields, in their order."""
        first = api.post("/charges", key=key, label=label)
        retry = api.post("/charges", key=key, label=label)
        assert len(first.headers("Link")) == 2
        assert retry.headers("Link") == first.headers("Link")

    @covers(55)
    def test_cookies(self, api: Server, key: str, label: str) -> None:
        """A session belongs to the message that set it: the retry gets the body alone."""
        first = api.post("/cookie", key=key, label=label)
        retry = api.post("/cookie", key=key, label=label)
        assert len(first.headers("Set-Cookie")) == 2
        assert retry.headers("Set-Cookie") == []
        assert_replay(first, retry)

    @covers(56)
    def test_the_date_is_new(self, api: Server, key: str, label: str) -> None:
        """A replay is a message of its own (RFC 9110 section 6.6.1)."""
        first = api.post("/charges", key=key, label=label).date

        def send() -> Reply:
            return api.post("/charges", key=key, label=label)

        # Not only another one: a server may write its clock down now and then, each of its workers by itself.
        assert eventually(send, lambda reply: reply.date > first).replayed

    @covers(56)
    def test_request_ids(self, api: Server, key: str, label: str) -> None:
        """Each message has its own id; a replay says under which one it really happened."""
        one, two = fresh("request"), fresh("request")
        first = api.post("/charges", key=key, fields=[("X-Request-Id", one)], label=label)
        retry = api.post("/charges", key=key, fields=[("X-Request-Id", two)], label=label)
        assert first.header("X-Request-Id") in (None, one)
        assert retry.header("X-Request-Id") in (None, two)
        assert retry.header("Original-Request-Id") == one

    @covers(56)
    def test_a_request_id_that_nobody_sent(self, api: Server, key: str, label: str) -> None:
        """Without one of the client's, the layer draws one, and replays agree on it."""
        api.post("/charges", key=key, label=label)
        ids = {api.post("/charges", key=key, label=label).header("Original-Request-Id") for _ in range(2)}
        assert len(ids) == 1
        assert all(ids)

    @covers(57)
    def test_the_message_is_framed_anew(self, api: Server, key: str, label: str) -> None:
        """No header of the first connection, and a `Content-Length` that is right."""
        first = api.post("/stream", key=key, chunks=5, ms=1, label=label)
        retry = api.post("/stream", key=key, chunks=5, ms=1, label=label)
        assert_replay(first, retry)
        assert retry.header("Content-Length") == str(len(first.body))
        for name in ("Transfer-Encoding", "Keep-Alive", "Upgrade", "Trailer", "TE"):
            assert retry.header(name) is None

    @covers(57, 52)
    def test_204_has_no_length(self, api: Server, key: str, label: str) -> None:
        """RFC 9110 section 8.6."""
        for _ in range(2):
            reply = api.post("/status/204", key=key, label=label)
            assert reply.status == 204
            assert reply.header("Content-Length") is None
            assert reply.header("Transfer-Encoding") is None

    @covers(59)
    def test_a_preflight(self, api: Server) -> None:
        """A browser may send the key from another origin."""
        reply = api.request(
            "OPTIONS",
            "/charges",
            user=None,
            fields=[
                ("Origin", "https://one.test"),
                ("Access-Control-Request-Method", "POST"),
                ("Access-Control-Request-Headers", "idempotency-key"),
            ],
        )
        assert reply.status in (200, 204)
        assert "idempotency-key" in (reply.header("Access-Control-Allow-Headers") or "").lower()

    @covers(59)
    def test_another_origin(self, api: Server, key: str, label: str) -> None:
        """A replay is allowed for the origin that asks now, and its marker can be read there."""

        def send(origin: str) -> Reply:
            return api.post("/charges", key=key, fields=[("Origin", origin)], label=label)

        first, retry = send("https://one.test"), send("https://two.test")
        assert first.header("Access-Control-Allow-Origin") == "https://one.test"
        assert retry.header("Access-Control-Allow-Origin") == "https://two.test"
        exposed = (retry.header("Access-Control-Expose-Headers") or "").lower()
        assert "idempotent-replayed" in exposed
        assert_replay(first, retry)

    @covers(60)
    def test_any_bytes(self, api: Server, key: str, label: str) -> None:
        """All 256 byte values come back, none taken for text."""
        first = api.post("/binary", key=key, label=label)
        assert first.body == bytes(range(256))
        assert_replay(first, api.post("/binary", key=key, label=label))

    @covers(61, 74)
    @pytest.mark.parametrize("size", [MAX_RESPONSE + 1, 3_000_000])
    def test_a_response_over_the_limit(self, serve: Servers, key: str, label: str, size: int) -> None:
        """The client gets all of it, once; the retry gets status, headers and no second run."""
        api = serve(**STRICT)
        first = api.post("/big", key=key, bytes=size, label=label)
        assert (first.status, len(first.body)) == (200, size)
        assert first.header("Idempotency-Body") is None
        for _ in range(2):
            retry = api.post("/big", key=key, bytes=size, label=label)
            assert (retry.status, retry.body) == (200, b"")
            assert retry.header("Idempotency-Body") == "omitted"
            assert retry.header("ETag") == first.header("ETag")
            assert retry.header("Content-Length") == "0"
            assert retry.replayed
        assert api.effects(label) == 1

    @covers(61)
    def test_a_response_at_the_limit(self, serve: Servers, key: str, label: str) -> None:
        """The last byte that fits is kept."""
        api = serve(**STRICT)
        first = api.post("/big", key=key, bytes=MAX_RESPONSE, label=label)
        retry = api.post("/big", key=key, bytes=MAX_RESPONSE, label=label)
        assert_replay(first, retry)
        assert retry.header("Idempotency-Body") is None

    @covers(62)
    def test_a_stream(self, api: Server, key: str, label: str) -> None:
        """Refused while it flows; every byte of it afterwards."""

        def send() -> Reply:
            return api.post("/stream", key=key, chunks=6, ms=100, label=label)

        running = api.at_work(send, label)
        assert_problem(send(), 409, "in-flight")
        first = running.result()
        assert len(first.body.splitlines()) == 6
        assert_replay(first, send())
        assert api.effects(label) == 1

    @covers(62, 74)
    def test_a_stream_over_the_limit(self, serve: Servers, key: str, label: str) -> None:
        """From the limit on its bytes flow; meanwhile it is in progress, then a tombstone."""
        api = serve(**STRICT)

        def send() -> Reply:
            return api.post("/stream", key=key, chunks=140, ms=5, label=label)

        running = api.at_work(send, label)
        assert_problem(send(), 409, "in-flight")
        first = running.result()
        assert len(first.body.splitlines()) == 140
        assert len(first.body) > MAX_RESPONSE
        retry = send()
        assert (retry.status, retry.body) == (200, b"")
        assert retry.header("Idempotency-Body") == "omitted"
        assert api.effects(label) == 1

    def test_what_is_stored_is_not_compressed(self, api: Server, key: str, label: str) -> None:
        """A compressor inside the layer would store one client's encoding for all of them."""

        def send(*accepted: str, key: str | None = key) -> Reply:
            fields = [("Accept-Encoding", coding) for coding in accepted]
            return api.post("/zipped", key=key, fields=fields, label=label)

        unguarded = send("gzip", key=None)
        assert unguarded.header("Content-Encoding") == "gzip"
        assert json.loads(gzip.decompress(unguarded.body))["id"]
        first = send("gzip")
        assert first.header("Content-Encoding") is None
        for retry in (send("gzip"), send(), send("br, gzip")):
            assert retry.document == first.document
            assert retry.header("Content-Encoding") is None
        assert api.effects(label) == 2
