"""Time: how long a key means what it means, and by whose clock."""

from retrysafe.testing.adapters.client import Reply, eventually, settled
from retrysafe.testing.adapters.server import Server
from retrysafe.testing.adapters.suite import (
    Servers,
    Suite,
    assert_problem,
    assert_replay,
    covers,
    fresh,
)


class Clock(Suite):
    @covers(70)
    def test_after_the_retention(self, serve: Servers, key: str, label: str) -> None:
        """An expired key is a fresh one, even with another payload, whether purged or not."""
        api = serve(retention=1.5)
        first = api.post("/charges", key=key, label=label)
        assert_replay(first, api.post("/charges", key=key, label=label))

        def send() -> Reply:
            return api.post("/charges", key=key, label=label, again=1)

        assert_problem(send(), 422, "key-reused")
        second = eventually(send, lambda reply: reply.status != 422)
        assert (second.status, second.replayed) == (201, False)
        assert_replay(second, send())
        assert api.effects(label) == 2

    @covers(70)
    def test_replays_do_not_prolong_the_retention(self, serve: Servers, key: str, label: str) -> None:
        """A client that keeps asking sees the key expire all the same."""
        api = serve(retention=1.5)

        def send() -> Reply:
            return api.post("/charges", key=key, label=label)

        first = send()
        again = eventually(send, lambda reply: not reply.replayed)
        assert again.status == 201
        assert again.document["id"] != first.document["id"]
        assert api.effects(label) == 2

    @covers(70)
    def test_a_running_request_does_not_expire(self, serve: Servers, key: str, label: str) -> None:
        """Longer than its retention, it still has its key, and its response is kept afterwards."""
        api = serve(retention=1.5)

        def send() -> Reply:
            return api.pending(key=key, seconds=2.2, label=label)

        running = api.at_work(send, label)
        done = settled(send)
        assert_replay(running.result(), done)
        assert api.effects(label) == 1

    @covers(73)
    def test_a_late_retry(self, api: Server, key: str, label: str) -> None:
        """What was created and then deleted is not created again."""
        first = api.post("/charges", key=key, label=label)
        path = first.header("Location") or ""
        assert api.request("DELETE", path, key=fresh(), label=fresh("label")).status == 204
        assert_replay(first, api.post("/charges", key=key, label=label))
        assert api.effects(label) == 1

    @covers(75)
    def test_a_wrong_clock(self, serve: Servers) -> None:
        """Workers an hour ahead and behind agree with the others on leases and on expiry.

        By its own clock the one ahead would find every record expired and every lease over; what
        the one behind writes would be so for the others.
        """
        right = serve.alone(retention=600)
        for skew in (3600, -3600):
            wrong = serve.beside(right, retention=600, skew=skew)
            for one, other in ((right, wrong), (wrong, right)):
                self._agree_on_expiry(one, other)
                self._agree_on_leases(one, other)

    def _agree_on_expiry(self, one: Server, other: Server) -> None:
        key, label = fresh(), fresh("label")
        first = one.post("/charges", key=key, label=label)
        assert_replay(first, other.post("/charges", key=key, label=label))
        assert one.effects(label) == 1

    def _agree_on_leases(self, one: Server, other: Server) -> None:
        key, label = fresh(), fresh("label")
        running = one.at_work(lambda: one.pending(key=key, label=label), label)
        reply = other.pending(key=key, label=label)
        assert_problem(reply, 409, "in-flight")
        assert running.result().status == 201
        assert one.effects(label) == 1
