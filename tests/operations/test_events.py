"""What observers, counts and the log have of an operation."""

import pytest

from retrysafe import Event, Guard, scopes
from retrysafe.events import Counted
from retrysafe.operations import PreviouslyFailed, operation


def test_events_and_counts() -> None:
    """The door, the action as the route, the target, and no status: there is no wire."""
    seen: list[Event] = []
    guard = Guard("memory:", scope=scopes.service("billing"), on_event=seen.append)

    @operation(guard, target="order")
    def charge(order: str) -> str:
        return order

    for _ in range(2):
        charge.once("o-1", key="a-key")
    assert [(event.verdict, event.attempt) for event in seen] == [("completed", 1), ("replayed", 1)]
    for event in seen:
        assert (event.door, event.action, event.target, event.route) == (
            "operation", "charge", "o-1", "charge"
        )  # fmt: skip
        assert (event.status, event.scope) == (None, (("service", "billing"),))
    assert guard.counts() == {
        Counted("completed", "operation", "charge", ""): 1,
        Counted("replayed", "operation", "charge", ""): 1,
    }
    guard.close()


def test_a_line_in_the_log_names_the_operation(caplog: pytest.LogCaptureFixture) -> None:
    """Once, whatever its targets are, and without words of requests."""
    guard = Guard("memory:", scope=scopes.service("billing"))

    @operation(guard, target="order")
    def charge(order: str) -> None:
        raise ConnectionError

    for order in ("o-1", "o-2"):
        for expected in (ConnectionError, PreviouslyFailed):
            with pytest.raises(expected):
                charge.once(order, key=order)
    [line] = [record.getMessage() for record in caplog.records if "replayed" in record.getMessage()]
    assert line.startswith("operation 'charge': a failure is replayed")
    assert "request" not in line
    guard.close()


def test_a_call_that_used_no_session(tmp_path: object, caplog: pytest.LogCaptureFixture) -> None:
    """Is named once by its action: its target is an id."""
    guard = Guard(f"sqlite:///{tmp_path}/keys.db", scope=scopes.service("billing"), effects="database")

    @operation(guard, target="order")
    def charge(order: str) -> str:
        return order

    for order in ("o-1", "o-2"):
        charge.once(order, key=order)
    [line] = [record.getMessage() for record in caplog.records if "used no session" in record.getMessage()]
    assert line.startswith("operation 'charge': ")
    guard.close()
