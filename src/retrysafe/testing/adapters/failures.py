"""What failed, in lease mode: whether it happened is unknown, so it is stored and not run again.

`failures_tx.py` has the same cases in transactional mode.
"""

import re

import pytest

from retrysafe.testing.adapters.client import Reply, until
from retrysafe.testing.adapters.server import Server
from retrysafe.testing.adapters.suite import (
    Servers,
    Suite,
    assert_problem,
    assert_replay,
    covers,
    fresh,
)


class Failures(Suite):
    @covers(46)
    @pytest.mark.parametrize("status", [401, 403, 408, 413, 425, 429])
    def test_a_response_that_says_not_begun(self, api: Server, key: str, label: str, status: int) -> None:
        """By these statuses a handler says that it did nothing: the key stays free."""
        for _ in range(2):
            reply = api.post(f"/status/{status}", key=key, label=label)
            assert reply.status == status
            assert not reply.replayed
        assert api.effects(label) == 2

    @covers(46)
    def test_503_with_and_without_retry_after(self, api: Server, label: str) -> None:
        """Only a 503 that says when to come back says that nothing happened."""
        key = fresh()
        for _ in range(2):
            reply = api.post("/status/503", key=key, label=label, retry_after=1)
            assert (reply.status, reply.replayed) == (503, False)
        assert api.effects(label) == 2
        key, label = fresh(), fresh("label")
        first = api.post("/status/503", key=key, label=label)
        assert_replay(first, api.post("/status/503", key=key, label=label))
        assert api.effects(label) == 1

    @covers(48)
    def test_a_failure_is_replayed(self, api: Server, key: str, label: str) -> None:
        """By default: whether a 500 charged is unknown, so it does not run a second time."""
        first = api.post("/status/500", key=key, label=label)
        retry = api.post("/status/500", key=key, label=label)
        assert first.status == 500
        assert_replay(first, retry)
        assert first.header("x-should-retry") == retry.header("x-should-retry") == "false"
        assert api.effects(label) == 1

    @covers(48)
    def test_a_failure_is_retried(self, serve: Servers, key: str, label: str) -> None:
        """`failed=retry`: until it succeeds, and then never again."""
        api = serve(failed="retry")
        replies = [api.post("/flaky", key=key, fail=2, label=label) for _ in range(5)]
        assert [reply.status for reply in replies] == [500, 500, 201, 201, 201]
        assert [reply.replayed for reply in replies] == [False, False, False, True, True]
        assert api.effects(label) == 3

    @covers(48)
    def test_a_failure_is_reported(self, serve: Servers, key: str, label: str) -> None:
        """`failed=conflict`: the retry learns how the first one ended, and runs nothing."""
        api = serve(failed="conflict")
        assert api.post("/status/502", key=key, label=label).status == 502
        retry = api.post("/status/502", key=key, label=label)
        assert_problem(retry, 409, "previously-failed")
        previous = retry.document["previous"]
        assert previous["status"] == 502
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", previous["at"])
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
        # It is raised again once the response is out.
        until(lambda: "failed after its effect" in api.log)
        match failed:
            case "replay":
                assert_replay(first, retry)
                assert first.header("x-should-retry") == "false"
            case "retry":
                assert_problem(retry, 500, "handler-failed")
                assert first.header("x-should-retry") == retry.header("x-should-retry") == "true"
            case _:
                assert_problem(retry, 409, "previously-failed")
        assert api.effects(label) == (2 if failed == "retry" else 1)

    @covers(50)
    def test_a_stream_that_breaks(self, api: Server, key: str, label: str) -> None:
        """Half a response is never replayed as a success, and not run again."""
        api.post("/break", key=key, label=label)
        retry = api.post("/break", key=key, label=label)
        assert retry.status >= 400
        assert api.effects(label) == 1

    @covers(33)
    def test_waiting_for_one_that_fails(self, serve: Servers, key: str, label: str) -> None:
        """The failure is an outcome: waiting requests get it, and nothing runs again."""
        api = serve(in_flight="wait", wait_for=1.5)

        def send() -> Reply:
            return api.post("/flaky", key=key, fail=1, ms=400, label=label)

        futures = [api.started(send) for _ in range(3)]
        replies = sorted((future.result() for future in futures), key=lambda reply: reply.replayed)
        assert replies[0].status == 500
        assert_replay(replies[0], replies[1])
        assert_replay(replies[0], replies[2])
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
