"""What is stored: classified by what is known about the effect."""

from http.client import IncompleteRead

import pytest

from retrysafe.testing.adapters.client import Answer, settled, until
from retrysafe.testing.adapters.server import Server
from retrysafe.testing.adapters.suite import (
    Servers,
    Suite,
    assert_problem,
    assert_replay,
    covers,
    fresh,
)


class Stored(Suite):
    @covers(45)
    @pytest.mark.parametrize("status", [400, 404, 409, 410, 422])
    def test_an_answer_that_says_no(self, api: Server, key: str, label: str, status: int) -> None:
        """The handler ran and decided: its refusal is the outcome."""
        first = api.post(f"/status/{status}", key=key, label=label)
        assert first.status == status
        assert_replay(first, api.post(f"/status/{status}", key=key, label=label))
        assert api.effects(label) == 1

    @covers(46)
    @pytest.mark.parametrize("status", [401, 403, 408, 413, 425, 429])
    def test_an_answer_that_says_not_begun(self, api: Server, key: str, label: str, status: int) -> None:
        """By these statuses a handler says that it did nothing: the key stays free."""
        for _ in range(2):
            answer = api.post(f"/status/{status}", key=key, label=label)
            assert answer.status == status
            assert not answer.replayed
        assert api.effects(label) == 2

    @covers(46)
    def test_503_with_and_without_retry_after(self, api: Server, label: str) -> None:
        """Only a 503 that says when to come back says that nothing happened."""
        key = fresh()
        for _ in range(2):
            answer = api.post("/status/503", key=key, label=label, retry_after=1)
            assert (answer.status, answer.replayed) == (503, False)
        assert api.effects(label) == 2
        key, label = fresh(), fresh("label")
        first = api.post("/status/503", key=key, label=label)
        assert_replay(first, api.post("/status/503", key=key, label=label))
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
        answer = api.post("/charges", key=key, label=label)
        assert (answer.status, answer.replayed) == (201, False)
        assert api.effects(label) == 1

    @covers(46)
    def test_a_bad_key_leaves_nothing(self, api: Server, key: str, label: str) -> None:
        """The corrected request runs."""
        bad = [("Idempotency-Key", f'"{key}')]
        assert api.post("/charges", fields=bad, label=label).status == 400
        assert api.post("/charges", key=key, label=label).status == 201
        assert api.effects(label) == 1

    @covers(48)
    def test_a_failure_is_replayed(self, api: Server, key: str, label: str) -> None:
        """By default: nobody knows whether a 500 charged, so it is not tried a second time."""
        first = api.post("/status/500", key=key, label=label)
        retry = api.post("/status/500", key=key, label=label)
        assert first.status == 500
        assert_replay(first, retry)
        assert retry.header("x-should-retry") == "false"
        assert api.effects(label) == 1

    @covers(48)
    def test_a_failure_is_retried(self, serve: Servers, key: str, label: str) -> None:
        """`failed=retry`: until it succeeds, and then never again."""
        api = serve(failed="retry")
        answers = [api.post("/flaky", key=key, fail=2, label=label) for _ in range(5)]
        assert [answer.status for answer in answers] == [500, 500, 201, 201, 201]
        assert [answer.replayed for answer in answers] == [False, False, False, True, True]
        assert api.effects(label) == 3

    @covers(48)
    def test_a_failure_is_reported(self, serve: Servers, key: str, label: str) -> None:
        """`failed=conflict`: the retry learns how the first one ended, and runs nothing."""
        api = serve(failed="conflict")
        assert api.post("/status/502", key=key, label=label).status == 502
        retry = api.post("/status/502", key=key, label=label)
        assert_problem(retry, 409, "previously-failed")
        assert retry.document["previous_status"] == 502
        assert retry.header("x-should-retry") == "false"
        assert api.effects(label) == 1

    @covers(48, 50)
    @pytest.mark.parametrize("failed", ["replay", "retry", "conflict"])
    def test_an_exception_is_a_failure(self, serve: Servers, key: str, label: str, failed: str) -> None:
        """An unhandled exception becomes a problem that is kept, and is still in the log."""
        api = serve() if failed == "replay" else serve(failed=failed)
        first = api.post("/raise", key=key, label=label)
        retry = api.post("/raise", key=key, label=label)
        assert_problem(first, 500, "handler-failed")
        assert "failed after its effect" not in first.body.decode()
        # It is raised again once the answer is out.
        until(lambda: "failed after its effect" in api.log)
        match failed:
            case "replay":
                assert_replay(first, retry)
                assert first.header("x-should-retry") == "false"
            case "retry":
                assert_problem(retry, 500, "handler-failed")
            case _:
                assert_problem(retry, 409, "previously-failed")
        assert api.effects(label) == (2 if failed == "retry" else 1)

    @covers(50)
    def test_a_stream_that_breaks(self, api: Server, key: str, label: str) -> None:
        """Half an answer is never replayed as a success, and not run again."""
        api.post("/break", key=key, label=label)
        retry = api.post("/break", key=key, label=label)
        assert retry.status >= 400
        assert api.effects(label) == 1

    @covers(50, 62)
    def test_a_stream_that_breaks_while_it_flows(self, serve: Servers, key: str, label: str) -> None:
        """The first client sees that it broke off; the retry learns that it failed."""
        api = serve(max_response=500)

        def send() -> Answer:
            return api.post("/break", key=key, chunks=100, label=label)

        with pytest.raises(IncompleteRead):
            send()
        retry = settled(send)
        assert_problem(retry, 500, "handler-failed")
        assert retry.replayed
        assert retry.header("x-should-retry") == "false"
        assert api.effects(label) == 1

    @covers(52)
    @pytest.mark.parametrize("status", [204, 205, 301, 302, 303, 307, 308])
    def test_answers_without_a_body(self, api: Server, key: str, label: str, status: int) -> None:
        """Redirections come back with their `Location`, empty answers empty."""
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

        def send() -> Answer:
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

        def send(amount: object) -> Answer:
            body = {"amount": amount, "label": label}
            return api.post("/validated", key=key, json_body=body)

        for wrong in (-1, 0, "1", None, True):
            assert send(wrong).status == 422
        assert api.effects(label) == 0
        first = send(5)
        assert (first.status, first.replayed) == (201, False)
        assert_replay(first, send(5))
        assert api.effects(label) == 1

    def test_derived_keys_are_stable(self, serve: Servers, key: str, label: str) -> None:
        """Every attempt passes the same keys on, so the services behind can recognise it."""
        api = serve(failed="retry")
        failed, done, retry = (api.post("/downstream", key=key, fail=1, label=label) for _ in range(3))
        assert (failed.status, done.status) == (500, 201)
        assert failed.document == done.document
        assert_replay(done, retry)
        assert len(set(done.document.values())) == 2
        assert key not in done.body.decode()
        other = api.post("/downstream", key=fresh(), label=fresh("label"))
        assert not set(other.document.values()) & set(done.document.values())
        assert api.effects(label) == 2

    def test_a_background_task_runs_once(self, api: Server, key: str, label: str) -> None:
        """It belongs to the first run alone, and has happened before anybody sees a replay."""
        first = api.post("/background", key=key, ms=100, label=label)
        assert first.status == 201
        assert_replay(first, api.post("/background", key=key, ms=100, label=label))
        assert api.effects(label) == 1
