"""Callers that are killed and frozen: what they began is done once, and no key is lost with them."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from dbos import DBOS

from retrysafe.operations import OutcomeUnknown
from tests.conftest import LONG
from tests.operations.dbos.callers import Callers, outcomes, there_is_one_fork
from tests.operations.dbos.conftest import Controls, Running, wait_until
from tests.operations.dbos.workflows import RUNS, Held

LEASE = 0.5
"""Seconds, of callers: a retry soon takes over from one that was killed."""

KILLS = 200 if LONG else 12


@pytest.fixture
def about(running: Running, tmp_path: Path) -> dict[str, Any]:
    """What callers have in common with the `control` of the test."""
    return {
        "dbos": running.url,
        "keys": f"sqlite:///{tmp_path}/keys.db",
        "outcomes": str(tmp_path / "outcomes"),
        "key": "k",
        "lease": LEASE,
    }


def test_fifty_forks_with_kills(callers: Callers, running: Running, about: dict[str, Any]) -> None:
    """Fifty callers in five processes retry one fork, and the processes are killed: there is one fork."""
    there_is_one_fork(callers, running.forks, {**about, "workflow": running.finished()}, KILLS)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("action", ["cancel", "resume", "fork"])
def test_killed_in_the_middle(
    callers: Callers,
    control_with: Controls,
    running: Running,
    about: dict[str, Any],
    action: str,
    moment: str,
) -> None:
    """Killed before DBOS did it, or after and before that was stored: the retry has it done once.

    The original refused the key for a week, and alerted no operator.
    """
    control = control_with()
    with Held():
        workflow = running.begun()
        if action == "resume":
            control.cancel_workflow(workflow, key="before")
        said = {**about, "action": action, "workflow": workflow, "trap": f"kill {moment} {action}"}
        assert callers.wait(callers.start(**said)) == -signal.SIGKILL
        if (action, moment) == ("resume", "after"):
            wait_until(lambda: RUNS[workflow, 1] == 2)  # it goes on, and must not be resumed beside itself
        done = _act(control, action, workflow, wait=30)
        assert not done.replayed
        assert _act(control, action, workflow).replayed
        match action:
            case "cancel":
                assert running.status(workflow) == "CANCELLED"
            case "resume":
                wait_until(lambda: RUNS[workflow, 1] == 2)
                assert running.status(workflow) == "PENDING"
            case _:
                assert running.forks(workflow) == [done.new_workflow_id]
    if action == "resume":
        DBOS.retrieve_workflow(workflow).get_result()
        assert RUNS[workflow, 1] == 2


def test_a_resume_that_was_killed_of_what_runs_elsewhere(
    callers: Callers, control_with: Controls, running: Running, about: dict[str, Any]
) -> None:
    """That a workflow is active does not say that it was resumed: not where it is not in that queue."""
    control = control_with()
    with Held():
        workflow = running.begun()
        said = {**about, "action": "resume", "workflow": workflow, "trap": "kill before resume"}
        assert callers.wait(callers.start(**said)) == -signal.SIGKILL
        assert control.resume_workflow(workflow, key="k", wait=30).status == "ENQUEUED"
        wait_until(lambda: RUNS[workflow, 1] == 2)


def _act(control: Any, action: str, workflow: str, **more: Any) -> Any:
    arguments = [workflow, 2] if action == "fork" else [workflow]
    return getattr(control, f"{action}_workflow")(*arguments, key="k", **more)


def test_killed_where_an_operator_decides(
    callers: Callers, control_with: Controls, running: Running, about: dict[str, Any]
) -> None:
    """`abandoned="hold"`: the outcome is said to be unknown, and nothing is done again."""
    options = {"abandoned": "hold"}
    control = control_with(options=options)
    workflow = running.finished()
    said = {**about, "action": "fork", "workflow": workflow, "trap": "kill before fork", "options": options}
    assert callers.wait(callers.start(**said)) == -signal.SIGKILL
    with pytest.raises(OutcomeUnknown) as refused:
        control.fork_workflow(workflow, 2, key="k", wait=30)
    assert (refused.value.status, refused.value.retry) == (409, False)
    assert running.forks(workflow) == []


def test_frozen_in_the_middle(
    callers: Callers, control_with: Controls, running: Running, about: dict[str, Any]
) -> None:
    """A caller stands still until another attempt has cancelled, and a third caller has resumed: when it goes
    on, it does not cancel what was resumed."""
    control = control_with()
    with Held():
        workflow = running.begun()
        said = {
            **about,
            "action": "cancel",
            "workflow": workflow,
            "trap": "stop after look",
            "retries": False,
            # Too long to be renewed by then: a renewal that is frozen would lock the file for the others.
            "lease": 2.0,
        }
        frozen = callers.start(**said)
        try:
            wait_until(lambda: _is_stopped(frozen))
            assert not control.cancel_workflow(workflow, key="k", wait=30).replayed
            control.resume_workflow(workflow, key="resume")
        finally:
            os.kill(frozen, signal.SIGCONT)
            ended = callers.wait(frozen)
        assert ended == 0
        assert running.status(workflow) in ("ENQUEUED", "PENDING")
        [told] = outcomes(about)
        assert told.get("refused") == "ControlUnavailable" or told["idempotency_replayed"]
    DBOS.retrieve_workflow(workflow).get_result()


def _is_stopped(pid: int) -> bool:
    """By the third field of its line in /proc."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
