"""Core enforcement: which requests are covered, and what the others get."""

import json
from urllib.parse import urlsplit

import pytest

from retrysafe.testing.adapters.client import Reply, common
from retrysafe.testing.adapters.server import Server
from retrysafe.testing.adapters.suite import (
    STRICT,
    Servers,
    Suite,
    assert_problem,
    assert_replay,
    covers,
    fresh,
)


class Enforcement(Suite):
    @covers(15)
    def test_a_required_key(self, serve: Servers, key: str, label: str) -> None:
        """Where a key is required, a request without one runs nothing and gets a link to the
        documentation."""
        api = serve(**STRICT)
        reply = api.post("/charges", label=label)
        assert_problem(reply, 400, "key-missing")
        assert api.effects(label) == 0
        assert api.post("/charges", key=key, label=label).status == 201

    @covers(16)
    def test_without_a_key_every_request_runs(self, api: Server, label: str) -> None:
        """An optional key that is not sent changes nothing."""
        replies = [api.post("/charges", label=label) for _ in range(3)]
        assert len({reply.document["id"] for reply in replies}) == 3
        assert not any(reply.replayed for reply in replies)
        assert api.effects(label) == 3

    @covers(17)
    @pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
    def test_a_retry_gets_the_same_bytes(self, api: Server, key: str, label: str, method: str) -> None:
        """The response contains a random id: equal bytes can only be the stored ones."""
        path = "/charges" if method == "POST" else f"/charges/{fresh('id')}"

        def send() -> Reply:
            body = {"label": label, "amount": 7}
            return api.request(method, path, key=key, json_body=body)

        first = send()
        assert first.status in (200, 201)
        for _ in range(3):
            assert_replay(first, send())
        assert api.effects(label) == 1

    @covers(18)
    def test_two_keys_are_two_requests(self, api: Server, label: str) -> None:
        """Two keys are two requests, even where all else is equal."""
        ids = {api.post("/charges", key=fresh(), label=label).document["id"] for _ in range(2)}
        assert len(ids) == 2
        assert api.effects(label) == 2

    @covers(19)
    def test_one_key_with_two_payloads(self, api: Server, key: str, label: str) -> None:
        """Refused, and harmless: the first request's own retry still gets its response."""
        first = api.post("/charges", key=key, json_body={"amount": 1}, label=label)
        other = api.post("/charges", key=key, json_body={"amount": 2}, label=label)
        assert_problem(other, 422, "key-reused")
        assert other.header("x-should-retry") == "false"
        assert_replay(first, api.post("/charges", key=key, json_body={"amount": 1}, label=label))
        assert api.effects(label) == 1

    @covers(22)
    def test_get_ignores_the_key(self, api: Server, key: str, label: str) -> None:
        """A stored GET would show a state that is over."""
        counts: list[int] = []
        for _ in range(2):
            reply = api.request("GET", "/effects", key=key, label=label)
            assert not reply.replayed
            counts.append(reply.document["count"])
            assert api.post("/charges", key=key if len(counts) == 1 else fresh(), label=label)
        assert counts == [0, 1]

    @covers(23)
    @pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
    def test_head_and_options_ignore_the_key(self, api: Server, key: str, label: str, method: str) -> None:
        """They are neither stored nor replayed: the same key is still free for a POST."""
        path = "/effects" if method == "HEAD" else "/charges"
        before = api.request(method, path, key=key, label=label)
        assert before.status in (200, 204)
        assert before.body == b""
        first = api.post("/charges", key=key, label=label)
        assert first.status == 201
        assert not first.replayed
        after = api.request(method, path, key=key, label=label)
        assert not after.replayed
        if method == "HEAD":
            assert (before.header("ETag"), after.header("ETag")) == ('"0"', '"1"')

    @covers(23)
    def test_a_malformed_key_does_not_matter_where_no_key_does(self, api: Server) -> None:
        """A method that is not covered passes through, whatever the header says."""
        reply = api.request("GET", "/effects", fields=[("Idempotency-Key", '"a')], label="-")
        assert reply.status == 200

    @covers(24)
    def test_one_key_on_two_routes(self, api: Server, key: str, label: str) -> None:
        """Never the other route's response."""
        first = api.post("/charges", key=key, label=label)
        other = api.post("/cookie", key=key, label=label)
        assert other.body != first.body
        assert_problem(other, 422, "key-reused")
        assert api.effects(label) == 1

    @covers(24)
    def test_one_key_on_two_items_and_methods(self, api: Server, key: str, label: str) -> None:
        """Path and method are part of the request, even where the bodies are equal."""
        one, two = fresh("id"), fresh("id")
        assert api.request("PUT", f"/charges/{one}", key=key, label=label).status == 200
        for method, item in (("PUT", two), ("PATCH", one), ("DELETE", one)):
            reply = api.request(method, f"/charges/{item}", key=key, label=label)
            assert_problem(reply, 422, "key-reused")
        assert api.effects(label) == 1

    @covers(25, 52)
    def test_delete_is_covered(self, api: Server, key: str, label: str) -> None:
        """The retry gets the first 204; only a new request learns that it is gone."""
        path = f"/charges/{fresh('id')}"
        first = api.request("DELETE", path, key=key, label=label)
        assert first.status == 204
        assert_replay(first, api.request("DELETE", path, key=key, label=label))
        assert api.request("DELETE", path, label=label).status == 404
        assert api.effects(label) == 1

    @covers(26)
    def test_problems_are_well_formed(self, serve: Servers, label: str) -> None:
        """Distinct absolute types, constant titles, and a status that says the same as HTTP's."""
        api = serve(**STRICT)
        key = fresh()
        api.post("/charges", key=key, label=label)
        seen: dict[str, dict[str, object]] = {}
        for _ in range(2):
            problems = {
                "key-invalid": api.post("/charges", fields=[("Idempotency-Key", '"')]),
                "principal-required": api.post("/private", user=None, key=fresh()),
                "key-reused": api.post("/charges", key=key, body=b"other", label=label),
                "body-too-large": api.post("/charges", key=fresh(), body=b"." * 1001),
                "handler-failed": api.post("/raise", key=fresh(), label=label),
                "not-done": api.post("/notdone", key=fresh(), times=99, label=label),
            }
            for code, reply in problems.items():
                assert_problem(reply, reply.status, code)
                document = reply.document
                assert document["title"] == seen.setdefault(code, document)["title"]
        assert len({document["type"] for document in seen.values()}) == len(seen)
        assert len({document["title"] for document in seen.values()}) == len(seen)

    @covers(27, 15)
    def test_the_type_leads_to_the_promises(self, serve: Servers, label: str) -> None:
        """Without any credentials or key: format, scope, retention and what is stored."""
        api = serve(**STRICT)
        link = urlsplit(str(api.post("/charges", label=label).document["type"]))
        assert link.netloc == "reference.test"
        page = api.request("GET", link.path, user=None)
        assert page.status == 200
        text = page.body.decode().lower()
        for topic in ("255", "scope", "retention", "replay", "key-missing"):
            assert topic in text, f"{topic} is not explained"

    @covers(25, 16)
    def test_a_refused_request_does_not_read_the_body(self, api: Server, label: str) -> None:
        """`Expect: 100-continue` and a bad key: the final response comes, no `100 Continue`."""
        fields = [("Idempotency-Key", '"'), ("Expect", "100-continue"), ("Content-Length", "10")]
        with api.connect() as connection:
            connection.head("POST", f"/charges?label={label}", common(None, "alice", fields))
            received = connection.socket.recv(65536)
        assert received.startswith(b"HTTP/1.1 400 ")
        assert api.effects(label) == 0

    def test_an_accepted_request_is_told_to_continue(self, api: Server, key: str, label: str) -> None:
        """The other half: with a good key the layer asks for the body, and hashes all of it."""
        body = json.dumps({"label": label}).encode()
        fields = [("Expect", "100-continue"), ("Content-Length", str(len(body)))]
        with api.connect() as connection:
            connection.head("POST", "/charges", common(key, "alice", fields))
            assert connection.socket.recv(25).startswith(b"HTTP/1.1 100 ")
            connection.send(body)
            first = connection.reply()
        assert first.status == 201
        assert_replay(first, api.post("/charges", key=key, body=body))
        assert api.effects(label) == 1
