"""Crashes and leases: whoever dies, freezes or hangs up, nothing happens twice."""

import http.client
from contextlib import closing

import pytest

from retrysafe import stores
from retrysafe.stores.administration import Query
from retrysafe.testing.adapters.client import Answer, common, settled, until
from retrysafe.testing.adapters.server import Server
from retrysafe.testing.adapters.suite import (
    Servers,
    Suite,
    assert_problem,
    assert_replay,
    covers,
    fresh,
)

BROKEN_OFF = (http.client.HTTPException, OSError)


def crash(api: Server, key: str, label: str) -> None:
    """Have the worker kill itself after its effect, and wait until the service answers again."""
    with pytest.raises(BROKEN_OFF):
        api.post("/crash", key=key, label=label)
    api.revive()


class Crash(Suite):
    @covers(76, 50)
    def test_killed_and_held(self, serve: Servers, key: str, label: str) -> None:
        """In flight until the lease ends, then unknown: the effect may have happened, and had."""
        api = serve.alone(lease=2)
        crash(api, key, label)

        def send() -> Answer:
            return api.post("/crash", key=key, label=label)

        before = send()
        assert_problem(before, 409, "in-flight")
        assert int(before.header("Retry-After") or 0) >= 1
        unknown = settled(send)
        assert_problem(unknown, 409, "outcome-unknown")
        assert unknown.header("x-should-retry") == "false"
        assert send().code == "outcome-unknown"
        assert_problem(api.post("/charges", key=key, label=label), 422, "key-reused")
        assert api.effects(label) == 1

    @covers(76)
    def test_killed_and_taken_over(self, serve: Servers, key: str, label: str) -> None:
        """`abandoned=retry`: runs again after the lease, and not before."""
        api = serve.alone(lease=2, abandoned="retry")
        crash(api, key, label)

        def send() -> Answer:
            return api.post("/crash", key=key, label=label)

        assert_problem(send(), 409, "in-flight")
        assert api.effects(label) == 1
        with pytest.raises(BROKEN_OFF):
            settled(send)
        api.revive()
        assert api.effects(label) == 2

    @covers(76)
    def test_one_takes_over(self, serve: Servers, key: str, label: str) -> None:
        """Of many who wait for the lease to end, one runs, and the others get its answer."""
        api = serve.alone(lease=1, abandoned="retry")

        def send() -> Answer:
            return api.lasting(key=key, label=label)

        running = api.running(send, label)
        api.restart()
        with pytest.raises(BROKEN_OFF):
            running.result()
        futures = [api.started(lambda: settled(send)) for _ in range(5)]
        answers = sorted((future.result() for future in futures), key=lambda found: found.replayed)
        assert (answers[0].status, answers[0].replayed) == (200, False)
        for answer in answers[1:]:
            assert_replay(answers[0], answer)
        assert api.effects(label) == 2

    @covers(76)
    def test_other_keys_go_on(self, serve: Servers, key: str, label: str) -> None:
        """A worker that died blocks its own key, and nothing else."""
        api = serve.alone(lease=30)
        first = api.post("/charges", key=key, label=label)
        crash(api, fresh(), fresh("label"))
        assert_replay(first, api.post("/charges", key=key, label=label))
        assert api.post("/charges", key=fresh(), label=label).status == 201

    @covers(76, 74)
    @pytest.mark.parametrize("abandoned", ["hold", "retry"])
    def test_killed_while_its_answer_flows(
        self, serve: Servers, key: str, label: str, abandoned: str
    ) -> None:
        """Bytes of it have left: nobody takes it over, whatever the policy."""
        api = serve.alone(lease=1, abandoned=abandoned, max_response=100)
        target = f"/stream?chunks=100&ms=100&label={label}"
        fields = common(key, "alice", [("Content-Length", "0"), ("Connection", "close")])

        def send() -> Answer:
            with api.connect() as connection:
                connection.head("POST", target, fields)
                return connection.answer()

        with api.connect() as connection:
            connection.head("POST", target, fields)
            assert connection.response().read(100)
            api.restart()
        assert_problem(settled(send), 409, "outcome-unknown")
        assert api.effects(label) == 1

    @covers(78)
    @pytest.mark.parametrize("abandoned", ["hold", "retry"])
    def test_a_handler_outlives_its_lease(self, serve: Servers, key: str, label: str, abandoned: str) -> None:
        """The lease is renewed as long as the handler runs: in flight to the end, and one run."""
        api = serve(lease=1, abandoned=abandoned)

        def send() -> Answer:
            return api.lasting(key=key, seconds=2.0, label=label)

        running = api.running(send, label)
        done = settled(send)
        assert_replay(running.result(), done)
        assert api.effects(label) == 1

    @covers(76)
    def test_frozen_and_overtaken(self, serve: Servers, key: str, label: str) -> None:
        """A worker that slept through its lease tells its client what its successor stored."""
        frozen = serve.alone(workers=1, lease=1, abandoned="retry")
        other = serve.beside(frozen, workers=1, lease=1, abandoned="retry")

        def send(api: Server) -> Answer:
            return api.lasting(key=key, label=label)

        running = frozen.running(lambda: send(frozen), label)
        frozen.freeze()
        try:
            successor = settled(lambda: send(other))
        finally:
            frozen.thaw()
        assert (successor.status, successor.replayed) == (200, False)
        assert running.result().essence == successor.essence
        assert_replay(successor, send(frozen))
        assert other.effects(label) == 2

    @covers(76)
    def test_frozen_and_held(self, serve: Servers, key: str, label: str) -> None:
        """Under `hold` nobody overtakes: unknown while it sleeps, and its own answer after."""
        frozen = serve.alone(workers=1, lease=1)
        other = serve.beside(frozen, workers=1, lease=1)

        def send(api: Server) -> Answer:
            return api.lasting(key=key, label=label)

        running = frozen.running(lambda: send(frozen), label)
        frozen.freeze()
        try:
            unknown = settled(lambda: send(other))
        finally:
            frozen.thaw()
        assert_problem(unknown, 409, "outcome-unknown")
        first = running.result()
        assert first.status == 200
        assert_replay(first, send(other))
        assert other.effects(label) == 1

    @covers(81)
    @pytest.mark.parametrize("at_once", [True, False])
    def test_the_client_hangs_up(self, api: Server, key: str, label: str, at_once: bool) -> None:
        """The handler is not told: its outcome is recorded, and the retry gets it."""
        target = f"/stream?chunks=9&ms=50&label={label}"
        fields = common(key, "alice", [("Content-Length", "0"), ("Connection", "close")])
        with api.connect() as connection:
            connection.head("POST", target, fields)
            until(lambda: at_once or api.effects(label) == 1)

        def send() -> Answer:
            with api.connect() as connection:
                connection.head("POST", target, fields)
                return connection.answer()

        done = settled(send)
        assert (done.status, len(done.body.splitlines())) == (200, 9)
        assert done.replayed or at_once
        assert api.effects(label) == 1

    @covers(81, 62)
    def test_the_client_hangs_up_while_its_answer_flows(self, serve: Servers, key: str, label: str) -> None:
        """Nobody has all of it, and nobody can have the rest: a tombstone or a failure, no rerun."""
        api = serve(max_response=100)
        target = f"/stream?chunks=20&ms=50&label={label}"
        fields = common(key, "alice", [("Content-Length", "0"), ("Connection", "close")])

        def send() -> Answer:
            with api.connect() as connection:
                connection.head("POST", target, fields)
                return connection.answer()

        with api.connect() as connection:
            connection.head("POST", target, fields)
            assert connection.response().read(100)
        retry = settled(send)
        assert retry.header("Idempotency-Body") == "omitted" or retry.status >= 400
        assert api.effects(label) == 1

    @covers(81, 46)
    def test_the_client_hangs_up_before_its_body_is_complete(self, api: Server, key: str, label: str) -> None:
        """Half a request claims nothing: the key is free for a whole one."""
        with api.connect() as connection:
            fields = common(key, "alice", [("Content-Length", "1000")])
            connection.head("POST", f"/charges?label={label}", fields)
            connection.send(b"{")
            assert connection.is_silent(0.05)
        answer = api.post("/charges", key=key, body=b"whole", label=label)
        assert (answer.status, answer.replayed) == (201, False)
        assert api.effects(label) == 1

    @covers(85)
    def test_an_operator_sees_it(self, serve: Servers, key: str, label: str) -> None:
        """An abandoned key is listed for whoever looks into the store, without any retry."""
        if not self.backing.shared:
            pytest.skip("nobody else can look into it")
        api = serve.alone(lease=1)
        crash(api, key, label)
        abandoned = Query(standings=frozenset({"abandoned"}))
        with closing(stores.open(api.store)) as store, closing(store.open_admin()) as admin:
            until(lambda: key in [sighting.record.key for sighting in admin.list(abandoned)])
        assert api.post("/crash", key=key, label=label).code == "outcome-unknown"
        assert api.effects(label) == 1

    def test_a_rolling_deploy(self, serve: Servers, key: str, label: str) -> None:
        """SIGTERM: what runs is finished and stored, and the next process replays it."""
        old = serve.alone(grace=10)
        new = serve.beside(old)

        def send(api: Server) -> Answer:
            return api.lasting(key=key, label=label)

        running = old.running(lambda: send(old), label)
        old.terminate()
        first = running.result()
        assert first.status == 200
        assert old.exit_status() == 0
        assert_replay(first, send(new))
        assert new.effects(label) == 1
