"""What failed, in transactional mode: everything was rolled back, so nothing is stored and the retry runs.

`failures.py` has the same cases in lease mode.
"""

from collections import Counter
from contextlib import closing

import pytest

from retrysafe import stores
from retrysafe.stores.admin import Query
from retrysafe.testing.adapters.client import Reply, until
from retrysafe.testing.adapters.server import Server, address
from retrysafe.testing.adapters.suite import (
    Servers,
    Suite,
    assert_problem,
    assert_replay,
    covers,
    fresh,
)


def records(api: Server, key: str) -> int:
    """How many records the store has of a key."""
    with closing(stores.open(address(api.store))) as store, closing(store.open_admin()) as admin:
        return sum(sighting.record.key == key for sighting in admin.list(Query()))


class FailuresTx(Suite):
    @covers(46)
    @pytest.mark.parametrize("status", [401, 403, 408, 413, 425, 429])
    def test_a_response_that_says_not_begun(self, api: Server, key: str, label: str, status: int) -> None:
        """By these statuses a handler says that it did nothing, and is taken at its word: nothing remains."""
        for _ in range(2):
            reply = api.post(f"/status/{status}", key=key, label=label)
            assert reply.status == status
            assert not reply.replayed
        assert api.effects(label) == 0

    @covers(46)
    @pytest.mark.parametrize("retry_after", [True, False])
    def test_503_with_and_without_retry_after(
        self, api: Server, key: str, label: str, retry_after: bool
    ) -> None:
        """Whether it says when to come back makes no difference: it was undone."""
        hint = {"retry_after": 1} if retry_after else {}
        for _ in range(2):
            reply = api.post("/status/503", key=key, label=label, **hint)
            assert (reply.status, reply.replayed) == (503, False)
        assert api.effects(label) == 0

    @covers(48, 50)
    @pytest.mark.parametrize("status", [500, 502, 504])
    def test_a_failure_is_undone(self, api: Server, key: str, label: str, status: int) -> None:
        """The client gets the response; its effects are rolled back, so each retry runs, and none is left."""
        for number in (1, 2):
            reply = api.post(f"/status/{status}", key=key, label=label)
            assert (reply.status, reply.replayed) == (status, False)
            assert reply.header("x-should-retry") == "true"
            assert api.begun(label) == number
        assert api.effects(label) == 0

    @covers(48, 49)
    def test_a_failure_is_retried(self, api: Server, key: str, label: str) -> None:
        """Until it succeeds, and then never again: of all attempts one effect is left."""
        replies = [api.post("/flaky", key=key, fail=2, label=label) for _ in range(5)]
        assert [reply.status for reply in replies] == [500, 500, 201, 201, 201]
        assert [reply.replayed for reply in replies] == [False, False, False, True, True]
        assert api.begun(label) == 3
        assert api.effects(label) == 1

    @covers(49, 50)
    def test_an_exception_is_undone(self, api: Server, key: str, label: str) -> None:
        """No effect, no record, and the retry runs; a header says that it may, and the log says why."""
        for number in (1, 2):
            reply = api.post("/raise", key=key, label=label)
            assert_problem(reply, 500, "handler-failed")
            assert not reply.replayed
            assert reply.header("x-should-retry") == "true"
            assert "failed after its effect" not in reply.body.decode()
            # It is raised again once the response is out.
            until(lambda: "failed after its effect" in api.log)
            assert api.begun(label) == number
            assert records(api, key) == 0
        assert api.effects(label) == 0

    @covers(49)
    def test_what_was_undone_may_be_something_else(self, api: Server, key: str, label: str) -> None:
        """Nothing is remembered of what never happened: not even what it was asked."""
        assert api.post("/raise", key=key, label=label).status == 500
        first = api.post("/charges", key=key, json_body={"amount": 1}, label=label)
        assert (first.status, first.replayed) == (201, False)
        assert_problem(api.post("/raise", key=key, label=label), 422, "key-reused")
        assert records(api, key) == 1
        assert api.effects(label) == 1

    @covers(49, 62)
    def test_a_stream_that_breaks(self, api: Server, key: str, label: str) -> None:
        """Nothing of it has left: the client gets an error and not half a response, and the retry runs."""
        for _ in range(2):
            reply = api.post("/break", key=key, label=label)
            assert_problem(reply, 500, "handler-failed")
            assert not reply.replayed
        assert api.effects(label) == 0

    @covers(33)
    def test_waiting_for_one_that_fails(self, serve: Servers, key: str, label: str) -> None:
        """One of those who waited runs, and the others get its response."""
        api = serve(in_flight="wait", wait_for=1.5)

        def send() -> Reply:
            return api.post("/flaky", key=key, fail=1, ms=400, label=label)

        futures = [api.started(send) for _ in range(3)]
        replies = [future.result() for future in futures]
        seen = Counter((reply.status, reply.replayed) for reply in replies)
        assert seen == {(500, False): 1, (201, False): 1, (201, True): 1}
        assert api.effects(label) == 1

    def test_derived_keys_are_stable(self, api: Server, key: str, label: str) -> None:
        """Every attempt passes the same keys on, although everything else of the first one was undone."""
        failed, done, retry = (api.post("/downstream", key=key, fail=1, label=label) for _ in range(3))
        assert (failed.status, done.status) == (500, 201)
        assert failed.document == done.document
        assert_replay(done, retry)
        assert len(set(done.document.values())) == 2
        assert key not in done.body.decode()
        other = api.post("/downstream", key=fresh(), label=fresh("label"))
        assert not set(other.document.values()) & set(done.document.values())
        assert api.effects(label) == 1
