"""What is stored: classified by what is known about the effect."""

import pytest

from retrysafe.testing.adapters.client import Reply, until
from retrysafe.testing.adapters.server import Server
from retrysafe.testing.adapters.suite import (
    Suite,
    assert_problem,
    assert_replay,
    covers,
    fresh,
)


class Stored(Suite):
    @covers(45)
    @pytest.mark.parametrize("status", [400, 404, 409, 410, 422])
    def test_a_response_that_says_no(self, api: Server, key: str, label: str, status: int) -> None:
        """The handler ran and decided: its refusal is the outcome."""
        first = api.post(f"/status/{status}", key=key, label=label)
        assert first.status == status
        assert_replay(first, api.post(f"/status/{status}", key=key, label=label))
        assert api.effects(label) == 1

    @covers(46, 66)
    @pytest.mark.parametrize(
        ("user", "status"), [("revoked", 401), ("revoked.7", 401), ("alice.revoked", 403)]
    )
    def test_the_application_turned_it_away(
        self, api: Server, key: str, label: str, user: str, status: int
    ) -> None:
        """What an outer layer refused was never seen by ours: the valid retry runs."""
        assert api.post("/charges", user=user, key=key, label=label).status == status
        assert api.effects(label) == 0
        reply = api.post("/charges", key=key, label=label)
        assert (reply.status, reply.replayed) == (201, False)
        assert api.effects(label) == 1

    @covers(46)
    def test_a_bad_key_leaves_nothing(self, api: Server, key: str, label: str) -> None:
        """The corrected request runs."""
        bad = [("Idempotency-Key", f'"{key}')]
        assert api.post("/charges", fields=bad, label=label).status == 400
        assert api.post("/charges", key=key, label=label).status == 201
        assert api.effects(label) == 1

    @covers(52)
    @pytest.mark.parametrize("status", [204, 205, 301, 302, 303, 307, 308])
    def test_responses_without_a_body(self, api: Server, key: str, label: str, status: int) -> None:
        """Redirections come back with their `Location`, empty responses empty."""
        first = api.post(f"/status/{status}", key=key, label=label)
        retry = api.post(f"/status/{status}", key=key, label=label)
        assert first.status == status
        assert_replay(first, retry)
        assert retry.header("Location") == first.header("Location")
        assert (first.header("Location") is not None) == (status >= 300)
        assert api.effects(label) == 1

    @covers(46)
    def test_the_handler_says_not_done(self, api: Server, key: str, label: str) -> None:
        """`NotDone`: 503 with hints, nothing is kept, and the same key runs when it can."""

        def send() -> Reply:
            return api.post("/notdone", key=key, times=2, label=label)

        for _ in range(2):
            refused = send()
            assert_problem(refused, 503, "not-done")
            assert refused.header("Retry-After") == "1"
            assert refused.header("x-should-retry") == "true"
        first = send()
        assert (first.status, first.replayed) == (201, False)
        assert_replay(first, send())
        assert api.effects(label) == 1

    @covers(46)
    def test_validation_does_not_use_up_the_key(self, api: Server, key: str, label: str) -> None:
        """A request that validation refused can be corrected under the same key."""

        def send(amount: object) -> Reply:
            body = {"amount": amount, "label": label}
            return api.post("/validated", key=key, json_body=body)

        for wrong in (-1, 0, "1", None, True):
            assert send(wrong).status == 422
        assert api.effects(label) == 0
        first = send(5)
        assert (first.status, first.replayed) == (201, False)
        assert_replay(first, send(5))
        assert api.effects(label) == 1

    def test_a_background_task_runs_once(self, api: Server, key: str, label: str) -> None:
        """It belongs to the first run alone, whether the response waits for it or not."""
        first = api.post("/background", key=key, ms=100, label=label)
        assert first.status == 201
        assert_replay(first, api.post("/background", key=key, ms=100, label=label))
        # One that was begun by the replay would be done before this one.
        later = fresh("label")
        assert api.post("/background", key=fresh("key"), ms=200, label=later).status == 201
        until(lambda: api.effects(later) == 1)
        assert api.effects(label) == 1
