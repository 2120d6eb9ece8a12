"""Compatibility profiles: what clients of a published API see, whichever adapter carries it."""

import random
import re

import pytest

from retrysafe import profiles
from retrysafe.testing.adapters.client import Field, Reply
from retrysafe.testing.adapters.server import Server
from retrysafe.testing.adapters.suite import (
    Servers,
    Suite,
    assert_problem,
    covers,
    fresh,
)


def _keyed(key: str, header: str = "Idempotency-Key") -> list[Field]:
    """The key as it is, bare or quoted."""
    return [(header, key)]


def _meanwhile(api: Server, fields: list[Field], label: str) -> tuple[Reply, Reply, Reply]:
    """The response of a slow request, of its duplicate while it runs, and of one after it."""

    def send() -> Reply:
        return api.pending(fields=fields, label=label)

    running = api.at_work(send, label)
    refused = send()
    return running.result(), refused, send()


_RANDOM = re.compile(r"[0-9a-f]{16,}")
"""Ids of requests and of what was made: a response without one could be the same for everyone."""


def _ids(*replies: Reply) -> set[str]:
    return {id for reply in replies for id in _RANDOM.findall(f"{reply.body!r} {reply.fields}")}


class Profiles(Suite):
    @covers(64)
    @pytest.mark.parametrize("profile", [None, *profiles.PROFILES])
    def test_users_share_nothing(self, serve: Servers, label: str, profile: str | None) -> None:
        """The same key and request from two users: what was stored, refused or broke off for one is not for
        the other, and no byte of it.
        """
        api = serve() if profile is None else serve(profile=profile)
        header = profiles.get(profile).wire.key_header if profile else "Idempotency-Key"
        for path in ("/charges", "/status/500", "/big?bytes=1100000"):
            # Letters that no id has: some profiles send the key back, to each its own.
            key = "".join(random.choices("GHIJKLMNOPQRSTUVWXYZ", k=32))
            alice, bob = (
                _ids(*(api.post(path, fields=_keyed(key, header), user=user) for _ in range(2)))
                for user in ("alice", "bob")
            )
            assert alice
            assert bob
            assert alice.isdisjoint(bob)
        # What runs for one is neither in the way of the other nor told to it, another body included.
        fields = _keyed(fresh(), header)
        running = api.at_work(lambda: api.pending(fields=fields, label=label), label)
        for body in (b"", b"other"):
            other = api.post("/slow", fields=fields, user=f"bob{len(body)}", body=body, label=label)
            assert other.status == 201
        assert not running.done()
        assert running.result().status == 201
        assert api.effects(label) == 3

    @covers(95)
    def test_stripe(self, serve: Servers, label: str) -> None:
        """Bare keys, the marker, the id of the original on every keyed response; a mismatch is a 400."""
        api, fields = serve(profile="stripe"), _keyed(fresh())
        first, again = (api.post("/charges", fields=fields, label=label) for _ in range(2))
        assert first.essence == again.essence
        assert (first.replayed, again.replayed) == (False, True)
        other = api.post("/charges", fields=fields, body=b"other", label=label)
        assert other.status == 400
        assert other.header("Content-Type") == "application/json"
        assert other.document["error"]["type"] == "idempotency_error"
        assert isinstance(other.document["error"]["message"], str)
        assert other.header("Stripe-Should-Retry") == "false"
        for reply in (first, again, other):
            assert reply.header("Original-Request") == first.header("Request-Id")
        assert api.effects(label) == 1

    @covers(95)
    def test_stripe_in_flight(self, serve: Servers, label: str) -> None:
        """409 in the same envelope, with both hints."""
        first, refused, after = _meanwhile(serve(profile="stripe"), _keyed(fresh()), label)
        assert refused.status == 409
        assert refused.document["error"]["type"] == "idempotency_error"
        assert refused.header("Stripe-Should-Retry") == refused.header("X-Should-Retry") == "true"
        assert refused.header("Original-Request") == first.header("Request-Id")
        assert first.essence == after.essence

    @covers(95)
    def test_stripe_failure(self, serve: Servers, label: str) -> None:
        """A 500 is replayed, and says so; in a transaction it was undone, and says that."""
        api, fields = serve(profile="stripe"), _keyed(fresh())
        replies = [api.post("/status/500", fields=fields, label=label) for _ in range(2)]
        assert [reply.status for reply in replies] == [500, 500]
        assert [reply.replayed for reply in replies] == [False, not self.tx]
        hint = "true" if self.tx else "false"
        assert [reply.header("Stripe-Should-Retry") for reply in replies] == [hint, hint]
        assert api.effects(label) == (0 if self.tx else 1)

    @covers(95)
    def test_stripe_validation(self, serve: Servers, label: str) -> None:
        """Nothing is kept of a request that failed validation: corrected, it runs with the same key."""
        api, fields = serve(profile="stripe"), _keyed(fresh())
        wrong = api.post("/validated", fields=fields, json_body={"amount": -1}, label=label)
        right = api.post("/validated", fields=fields, json_body={"amount": 1}, label=label)
        assert (wrong.status, right.status, right.replayed) == (422, 201, False)
        assert api.effects(label) == 1

    @covers(102)
    def test_erp(self, serve: Servers, label: str) -> None:
        """Its marker, and the key as it was sent, on first responses and replays."""
        api = serve(profile="erp")
        for sent in (fresh(), f'"{fresh()}"'):
            first, again = (api.post("/charges", fields=_keyed(sent), label=label) for _ in range(2))
            assert first.essence == again.essence
            assert first.header("X-Idempotent-Replayed") is None
            assert again.header("X-Idempotent-Replayed") == "true"
            assert (first.header("Idempotency-Key"), again.header("Idempotency-Key")) == (sent, sent)
        assert api.effects(label) == 2

    @covers(102)
    def test_erp_keys(self, serve: Servers, label: str) -> None:
        """A key that is too long, or malformed otherwise, is 422."""
        api = serve(profile="erp")
        for key in ("k" * 300, '"open', "a,b", '""'):
            assert_problem(api.post("/charges", fields=_keyed(key), label=label), 422, "key-invalid")
        assert api.effects(label) == 0

    @covers(103)
    def test_agents(self, serve: Servers, label: str) -> None:
        """`X-Idempotency-Key`, on any route here; users are apart."""
        api, fields = serve(profile="agents"), _keyed(fresh(), "X-Idempotency-Key")
        replies = [
            api.post("/charges", fields=fields, label=label, user=user)
            for user in ("alice", "bob", "alice", "bob")
        ]
        assert [reply.replayed for reply in replies] == [False, False, True, True]
        assert replies[0].essence == replies[2].essence != replies[1].essence == replies[3].essence
        assert api.effects(label) == 2

    @covers(103)
    def test_agents_in_flight(self, serve: Servers, label: str) -> None:
        """409, with the words that its clients know."""
        first, refused, after = _meanwhile(
            serve(profile="agents"), _keyed(fresh(), "X-Idempotency-Key"), label
        )
        assert_problem(refused, 409, "in-flight")
        assert refused.document["detail"] == "Request is being processed"
        assert first.essence == after.essence

    @covers(104)
    def test_validation_api(self, serve: Servers, label: str) -> None:
        """The marker and the id of the original on a replay; 422 for another body, 409 meanwhile."""
        self._standard(serve(profile="validation-api"), _keyed(fresh()), label)

    @covers(105)
    def test_ietf(self, serve: Servers, label: str) -> None:
        """A quoted key; malformed 400, in flight 409, mismatch 422."""
        api = serve(profile="ietf")
        self._standard(api, _keyed(f'"{fresh()}"'), label)
        for key in ('"open', '"a"b', '"a", "b"', '""'):
            assert_problem(api.post("/charges", fields=_keyed(key), label=label), 400, "key-invalid")
        assert api.effects(label) == 1

    @staticmethod
    def _standard(api: Server, fields: list[Field], label: str) -> None:
        first, refused, again = _meanwhile(api, fields, label)
        assert_problem(refused, 409, "in-flight")
        assert first.essence == again.essence
        assert (first.replayed, again.replayed) == (False, True)
        assert again.header("Original-Request-Id") == first.header("X-Request-Id")
        other = api.pending(fields=fields, body=b"other", label=label)
        assert_problem(other, 422, "key-reused")
        assert api.effects(label) == 1
