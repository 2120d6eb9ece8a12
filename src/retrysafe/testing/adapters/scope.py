"""Scope and authorisation: whose key it is, and who may see a response."""

import pytest

from retrysafe.testing.adapters.client import until
from retrysafe.testing.adapters.server import Server
from retrysafe.testing.adapters.suite import Suite, assert_problem, assert_replay, covers, fresh


class Scope(Suite):
    @covers(64)
    def test_two_principals_do_not_meet(self, api: Server, key: str, label: str) -> None:
        """The same key from two users is two requests, and neither sees the other's response."""
        alice = api.post("/charges", user="alice", key=key, label=label)
        bob = api.post("/charges", user="bob", key=key, label=label)
        stranger = api.post("/charges", user=None, key=key, label=label)
        ids = {reply.document["id"] for reply in (alice, bob, stranger)}
        assert len(ids) == 3
        assert not any(reply.replayed for reply in (alice, bob, stranger))
        assert_replay(alice, api.post("/charges", user="alice", key=key, label=label))
        assert_replay(bob, api.post("/charges", user="bob", key=key, label=label))
        assert api.effects(label) == 3

    @covers(64)
    def test_two_principals_do_not_block_each_other(self, api: Server, key: str, label: str) -> None:
        """Nor does one learn from a refusal that the other's key is busy or used."""

        running = api.at_work(lambda: api.pending(user="alice", key=key, label=label), label)
        other = api.post("/charges", user="bob", key=key, label=label)
        assert (other.status, other.replayed) == (201, False)
        assert not running.done()
        assert running.result().status == 201
        assert api.effects(label) == 2

    @covers(64)
    def test_a_rotated_token_is_the_same_principal(self, api: Server, key: str, label: str) -> None:
        """A retry after a token refresh is still a retry."""
        first = api.post("/charges", user="alice.1", key=key, label=label)
        assert_replay(first, api.post("/charges", user="alice.2", key=key, label=label))
        assert api.effects(label) == 1

    @covers(65)
    @pytest.mark.parametrize(("user", "status"), [("alice.revoked", 403), ("revoked", 401)])
    def test_a_principal_that_lost_the_permission(
        self, api: Server, key: str, label: str, user: str, status: int
    ) -> None:
        """A stored response is for those who may ask now; the record is untouched meanwhile."""
        first = api.post("/charges", key=key, label=label)
        refused = api.post("/charges", user=user, key=key, label=label)
        assert refused.status == status
        assert first.document["id"] not in refused.body.decode()
        assert refused.header("Idempotent-Replayed") is None
        assert_replay(first, api.post("/charges", key=key, label=label))
        assert api.effects(label) == 1

    @covers(68)
    def test_without_a_principal(self, api: Server, key: str, label: str) -> None:
        """On a route that needs one, two strangers do not share a scope: both are refused."""
        for _ in range(2):
            reply = api.post("/private", user=None, key=key, label=label)
            assert_problem(reply, 400, "principal-required")
        assert api.effects(label) == 0
        assert api.post("/private", user="alice", key=key, label=label).status == 201
        assert api.effects(label) == 1

    @covers(69)
    def test_the_key_is_not_disclosed(self, api: Server, label: str) -> None:
        """No problem and no log line contains a key, whatever goes wrong with it."""
        key = fresh("secret")
        failures = api.log.count("failed half-way")
        replies = [
            api.post("/charges", key=key, label=label),
            api.post("/charges", key=key, label=label),
            api.post("/charges", key=key, body=b"other", label=label),
            api.post("/charges", fields=[("Idempotency-Key", f'"{key}')], label=label),
            api.post("/charges", fields=[("Idempotency-Key", f"{key} {key}")], label=label),
            api.post("/charges", user=None, key=key[:15], label=label),
            api.post("/charges", key=key.ljust(256, "x"), label=label),
            api.post("/private", user=None, key=key, label=label),
            api.post("/raise", key=key + "2", label=label),
            api.post("/raise", key=key + "2", label=label),
            api.post("/notdone", key=key + "3", times=1, label=label),
            api.post("/break", key=key + "4", label=label),
        ]
        assert sum(reply.code is not None for reply in replies) >= 8
        for reply in replies:
            told = reply.body.decode() + repr(reply.fields)
            assert key not in told
            assert key[:15] not in told
        until(lambda: api.log.count("failed half-way") > failures)
        assert key not in api.log
        assert key[:15] not in api.log
