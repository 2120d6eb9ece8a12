"""Control of workflows by functions, sentence by sentence of its specification, with a real DBOS."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from dbos import DBOS, DBOSClient, EnqueueOptions, SetWorkflowID
from dbos._utils import INTERNAL_QUEUE_NAME
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

from retrysafe import ConfigurationError, Guard, scopes
from retrysafe.operations import InFlight, KeyRefused, KeyReused, PreviouslyFailed
from retrysafe.operations.dbos import (
    ControlFailed,
    Controlled,
    ControlUnavailable,
    InvalidArgument,
    WorkflowControl,
    WorkflowMissing,
)
from retrysafe.operations.dbos import control as dbos_control
from retrysafe.operations.dbos.control import INTERNAL_QUEUE
from tests.operations.dbos.callers import SECRET
from tests.operations.dbos.conftest import Controls, Running, wait_until
from tests.operations.dbos.workflows import RUNS, Held, impatient, parent, report, report_async


@pytest.fixture
def refusing(running: Running) -> Iterator[None]:
    """DBOS's database refuses new forks, and says why: a real failure."""
    running.execute(
        "CREATE TRIGGER full BEFORE INSERT ON workflow_status WHEN NEW.forked_from IS NOT NULL "
        "BEGIN SELECT RAISE(ABORT, 'the quota of forks is used up'); END"
    )
    yield
    running.execute("DROP TRIGGER IF EXISTS full")


# --- the three actions


def test_cancel(running: Running, control: WorkflowControl) -> None:
    """004-1, 004-15, 004-19, 004-20: cancelled once, and the same payload with the flag for the retry."""
    with Held():
        workflow = running.begun()
        first = control.cancel_workflow(workflow, key="k")
        assert first == Controlled("cancel", workflow, "CANCELLED")
        again = control.cancel_workflow(workflow, key="k")
    assert first.payload() == {
        "action": "cancel",
        "workflow_id": workflow,
        "status": "CANCELLED",
        "idempotency_replayed": False,
    }
    assert again.payload() == {**first.payload(), "idempotency_replayed": True}


def test_a_retried_cancel_does_not_undo_a_resume(running: Running, control: WorkflowControl) -> None:
    """The response to a cancel was lost, the workflow was resumed, and the retry of the cancel arrives."""
    with Held():
        workflow = running.begun()
        control.cancel_workflow(workflow, key="cancel")
        control.resume_workflow(workflow, key="resume")
        assert control.cancel_workflow(workflow, key="cancel").replayed
        assert running.status(workflow) in ("ENQUEUED", "PENDING")
    DBOS.retrieve_workflow(workflow).get_result()


def test_resume(running: Running, control: WorkflowControl) -> None:
    """004-2: the workflow goes on once; a retry while it runs does not run its step beside itself."""
    with Held():
        workflow = running.begun()
        control.cancel_workflow(workflow, key="cancel")
        assert control.resume_workflow(workflow, key="k") == Controlled("resume", workflow, "ENQUEUED")
        wait_until(lambda: RUNS[workflow, 1] == 2)  # it begins its first step again
        assert control.resume_workflow(workflow, key="k").replayed
    assert DBOS.retrieve_workflow(workflow).get_result() == "untitled: 3 pages"
    assert [RUNS[workflow, number] for number in (1, 2, 3)] == [2, 1, 1]


def test_fork(running: Running, control: WorkflowControl) -> None:
    """004-3: one fork, from its step, however often it is asked for."""
    workflow = running.finished()
    forked = [control.fork_workflow(workflow, 3, key="k") for _ in range(3)]
    assert [one.replayed for one in forked] == [False, True, True]
    assert running.forks(workflow) == [forked[0].new_workflow_id]
    new = str(forked[0].new_workflow_id)
    assert DBOS.retrieve_workflow(new).get_result() == "untitled: 3 pages"
    assert [RUNS[new, number] for number in (1, 2, 3)] == [0, 0, 1]
    assert forked[1].payload().get("new_workflow_id") == new


def test_health(control: WorkflowControl) -> None:
    """004-4: no key, no record."""
    assert control.health().payload() == {"status": "ok", "records": "ok", "workflows": "ok"}
    assert _records(control) == 0


def test_forks_of_dbos_itself(running: Running) -> None:
    """What is protected against: DBOS takes no key, so two calls are two forks."""
    workflow = running.finished()
    for _ in range(2):
        DBOS.fork_workflow(workflow, 1)
    assert len(running.forks(workflow)) == 2
    assert INTERNAL_QUEUE == INTERNAL_QUEUE_NAME


# --- keys


@pytest.mark.parametrize("key", ["", "  \t ", "k" * 201, "é" * 101, 5, b"k", "a\x00b", "\ud800"])
def test_a_key_that_is_none(control: WorkflowControl, running: Running, key: Any) -> None:
    """004-5 to 004-8: a string, not empty after trimming, of at most 200 bytes; else 400."""
    workflow = running.finished()
    with pytest.raises(KeyRefused) as refused:
        control.fork_workflow(workflow, 1, key=key)
    assert (refused.value.status, refused.value.code) == (400, "key-invalid")
    assert running.forks(workflow) == []


def test_the_trimmed_key_is_the_key(control: WorkflowControl, running: Running) -> None:
    """004-6: white space around it tells no two keys apart."""
    workflow = running.finished()
    control.cancel_workflow(workflow, key="é" * 100)
    assert control.cancel_workflow(workflow, key=" " + "é" * 100 + "\n").replayed


def test_callers_have_their_own_keys(control: WorkflowControl, running: Running) -> None:
    """The original's keys had no owner: one caller's key gave another the first one's outcome."""
    workflow = running.finished()
    first = control.fork_workflow(workflow, 1, key="k", scope="ann")
    second = control.fork_workflow(workflow, 1, key="k", scope="bob")
    assert not second.replayed
    assert {first.new_workflow_id, second.new_workflow_id} == set(running.forks(workflow))


# --- what a key that is known means


def test_in_progress(control_with: Controls, running: Running) -> None:
    """004-13, 004-16: reserved before anything is done, and 409 meanwhile; or the retry waits for it."""
    client = _Slow(system_database_url=running.url)
    control = control_with(client)
    workflow = running.finished()
    waited: list[Controlled] = []
    first = threading.Thread(target=control.fork_workflow, args=[workflow, 1], kwargs={"key": "k"})
    first.start()
    assert client.entered.wait(30)
    with pytest.raises(InFlight) as refused:
        control.fork_workflow(workflow, 1, key="k")
    assert (refused.value.status, refused.value.retry) == (409, True)
    second = threading.Thread(
        target=lambda: waited.append(control.fork_workflow(workflow, 1, key="k", wait=30))
    )
    second.start()
    client.go_on.set()
    first.join()
    second.join()
    assert waited[0].replayed
    assert running.forks(workflow) == [waited[0].new_workflow_id]
    client.destroy()


def test_a_failure(control: WorkflowControl, running: Running, refusing: None) -> None:
    """004-12, 004-14, 004-17: stored, and then 409 that says how it failed."""
    workflow = running.finished()
    with pytest.raises(ControlFailed, match=r"^IntegrityError: the quota of forks is used up$"):
        control.fork_workflow(workflow, 1, key="k")
    running.execute("DROP TRIGGER full")
    with pytest.raises(PreviouslyFailed, match="quota of forks") as refused:
        control.fork_workflow(workflow, 1, key="k")
    failure = refused.value.failure
    assert failure is not None
    assert (refused.value.status, failure.type) == (409, "ControlFailed")
    assert failure.message == "IntegrityError: the quota of forks is used up"
    assert failure.at is not None
    assert not control.fork_workflow(workflow, 1, key="another").replayed


def test_a_failure_under_another_profile(control_with: Controls, running: Running, refusing: None) -> None:
    """Control is repeatable: unless the guard says otherwise, what failed is done again."""
    control = control_with(profile=None)
    workflow = running.finished()
    with pytest.raises(ControlFailed, match=r"^IntegrityError: the quota of forks is used up$"):
        control.fork_workflow(workflow, 1, key="k")
    running.execute("DROP TRIGGER full")
    forked = control.fork_workflow(workflow, 1, key="k")
    assert running.forks(workflow) == [forked.new_workflow_id]


@pytest.mark.parametrize(("profile", "status"), [("workflow-control", 409), (None, 422)])
def test_another_action_workflow_or_argument(
    control_with: Controls, running: Running, profile: str | None, status: int
) -> None:
    """004-9, 004-10, 004-18, 004-28: refused, and the first outcome stays.  The original replayed the fork
    from one step for another."""
    control = control_with(profile=profile)
    workflow, other = running.finished(), running.finished()
    control.fork_workflow(workflow, 2, key="k")
    others: tuple[Callable[[], Controlled], ...] = (
        lambda: control.fork_workflow(workflow, 3, key="k"),
        lambda: control.fork_workflow(other, 2, key="k"),
        lambda: control.fork_workflow(workflow, 2, key="k", queue_name="q"),
        lambda: control.fork_workflow(workflow, 2, key="k", queue_partition_key="p"),
        lambda: control.fork_workflow(workflow, 2, key="k", timeout_seconds=9),
        lambda: control.fork_workflow(workflow, 2, key="k", application_version="2"),
        lambda: control.fork_workflow(workflow, 2, key="k", replacement_children={"a": "b"}),
        lambda: control.cancel_workflow(workflow, key="k"),
        lambda: control.resume_workflow(workflow, key="k"),
    )
    for call in others:
        with pytest.raises(KeyReused) as refused:
            call()
        assert refused.value.status == status
    assert control.fork_workflow(workflow, 2, key="k").replayed
    assert (len(running.forks(workflow)), len(running.forks(other))) == (1, 0)
    control.resume_workflow(workflow, key="r")
    with pytest.raises(KeyReused):
        control.resume_workflow(workflow, key="r", queue_name="q")


# --- what the original lost a key, or a week, to


@pytest.mark.parametrize("action", ["cancel", "resume", "fork"])
def test_a_missing_workflow(control: WorkflowControl, running: Running, action: str) -> None:
    """It is said to be missing, which DBOS does not say of a cancel; and the key is as good as new."""
    workflow = f"later-{action}"

    def act() -> Controlled:
        if action == "fork":
            return control.fork_workflow(workflow, 1, key="k")
        return getattr(control, f"{action}_workflow")(workflow, key="k")  # type: ignore[no-any-return]

    with pytest.raises(WorkflowMissing, match=workflow):
        act()
    with SetWorkflowID(workflow):
        DBOS.start_workflow(report, 1).get_result()
    assert not act().replayed


def test_a_database_that_is_locked(control_with: Controls, running: Running) -> None:
    """A fork that the database did not take in time uses no key up, though its id was derived already."""
    impatient = create_engine(running.url, connect_args={"timeout": 0.05})
    client = DBOSClient(system_database_engine=impatient)
    control = control_with(client)
    workflow = running.finished()
    with closing(sqlite3.connect(running.file, isolation_level=None)) as beside:
        beside.execute("BEGIN IMMEDIATE")
        with pytest.raises(ControlUnavailable, match="locked"):
            control.fork_workflow(workflow, 1, key="k")
    forked = control.fork_workflow(workflow, 1, key="k")
    assert running.forks(workflow) == [forked.new_workflow_id]
    client.destroy()
    impatient.dispose()


@pytest.mark.parametrize("action", ["cancel", "resume", "fork", "start"])
def test_a_database_that_is_gone(
    control_with: Controls, running: Running, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """DBOS waits for it without end.  Here the caller is told, and no key or thread is kept meanwhile."""
    monkeypatch.setattr(dbos_control, "_PATIENCE", 0.05)
    client = _Stuck(system_database_url=running.url)
    control = control_with(client)
    workflow = running.finished()

    def act() -> Controlled:
        match action:
            case "fork":
                return control.fork_workflow(workflow, 1, key="k")
            case "start":
                queued: EnqueueOptions = {"workflow_name": "report", "queue_name": f"gone-{action}"}
                return control.enqueue_workflow(queued, 1, key="k")
            case _:
                return getattr(control, f"{action}_workflow")(workflow, key="k")  # type: ignore[no-any-return]

    before = threading.enumerate()
    for _ in range(3):
        with pytest.raises(ControlUnavailable, match=r"did not respond within 0\.05 seconds"):
            act()
    # DBOS starts threads of its own meanwhile.
    asking = [one for one in threading.enumerate() if one not in before and one.name == "retrysafe-health"]
    assert len(asking) == 1, "one asks for all of them"
    client.go_on.set()
    monkeypatch.undo()
    assert not act().replayed
    client.destroy()


def test_before_dbos_is_there(control: WorkflowControl, running: Running) -> None:
    """A call before its launch or after its end uses no key up, that of a new workflow neither."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dbos._dbos._dbos_global_instance", None)
        with pytest.raises(ControlUnavailable, match="No DBOS was created"):
            control.start_workflow(report, 1, key="k")
    assert not control.start_workflow(report, 1, key="k").replayed


def test_a_resume_whose_response_was_lost(control_with: Controls, running: Running) -> None:
    """The database took it, and the connection broke: it is not resumed again, beside itself."""
    client = _Unheard(system_database_url=running.url)
    control = control_with(client)
    with Held():
        workflow = running.begun()
        control.cancel_workflow(workflow, key="cancel")
        assert not control.resume_workflow(workflow, key="k").replayed
        wait_until(lambda: RUNS[workflow, 1] == 2)
        assert control.resume_workflow(workflow, key="k").replayed
    DBOS.retrieve_workflow(workflow).get_result()
    assert RUNS[workflow, 1] == 2
    client.destroy()


def test_trouble_after_it_was_done(control_with: Controls, running: Running) -> None:
    """That it was done is stored, though its status could not be asked for."""
    client = _Fading(system_database_url=running.url)
    control = control_with(client)
    workflow = running.finished()
    first = control.cancel_workflow(workflow, key="k")
    assert (first.status, first.replayed) == ("UNKNOWN", False)
    assert control.cancel_workflow(workflow, key="k") == replace(first, replayed=True)
    client.destroy()


def test_a_lost_record(control: WorkflowControl, running: Running) -> None:
    """The id of a fork is derived: without its record, the retry finds the fork that there is."""
    workflow = running.finished()
    first = control.fork_workflow(workflow, 2, key="k")
    _forget(control)
    again = control.fork_workflow(workflow, 2, key="k")
    assert (again.new_workflow_id, again.replayed) == (first.new_workflow_id, False)
    assert running.forks(workflow) == [first.new_workflow_id]
    _forget(control)
    other = control.fork_workflow(workflow, 3, key="k")  # another one: no record says that it is not
    assert other.new_workflow_id != first.new_workflow_id


def test_what_ids_are_derived_from(control_with: Controls, running: Running) -> None:
    """The secret, the owner, the key and each argument; who does not know the secret cannot foretell them."""
    workflow, other = running.finished(), running.finished()
    found: set[str] = set()
    for secret, scope, key, of, step in (
        (SECRET, "ann", "k", workflow, 1),
        ("another secret of it", "ann", "k", workflow, 1),
        (SECRET, "bob", "k", workflow, 1),
        (SECRET, "ann", "l", workflow, 1),
        (SECRET, "ann", "k", other, 1),
        (SECRET, "ann", "k", workflow, 2),
    ):
        control = control_with(secret=secret)
        found.add(str(control.fork_workflow(of, step, key=key, scope=scope).new_workflow_id))
        _forget(control)
    assert len(found) == 6
    assert {UUID(one).version for one in found} == {8}


def test_a_fork_that_another_attempt_made(control_with: Controls, running: Running) -> None:
    """Between the look and the fork: an error of the database, and it is taken for its own."""
    client = _Overtaken(system_database_url=running.url)
    workflow = running.finished()
    forked = control_with(client).fork_workflow(workflow, 2, key="k")
    assert running.forks(workflow) == [forked.new_workflow_id]
    client.destroy()


def test_a_guard_that_stores_no_responses(control_with: Controls, running: Running) -> None:
    """Outcomes are stored all the same: without them a retry would not learn the id of its fork."""
    control = control_with(no_store=True)
    workflow = running.finished()
    first = control.fork_workflow(workflow, 1, key="k")
    assert control.fork_workflow(workflow, 1, key="k") == replace(first, replayed=True)


def test_a_fork_of_a_fork(control: WorkflowControl, running: Running) -> None:
    """It is a workflow like others."""
    first = str(control.fork_workflow(running.finished(), 1, key="k").new_workflow_id)
    DBOS.retrieve_workflow(first).get_result()
    second = control.fork_workflow(first, 1, key="k2")
    _forget(control)
    assert control.fork_workflow(first, 1, key="k2").new_workflow_id == second.new_workflow_id
    assert running.forks(first) == [second.new_workflow_id]


# --- where it is called


def test_both_ways_are_one_operation(control: WorkflowControl, running: Running) -> None:
    """What the blocking call did, the asynchronous one replays, and the other way round."""
    workflow = running.finished()

    async def forked() -> tuple[Controlled, Controlled, bool]:
        return (
            await control.fork_workflow_async(workflow, 2, key="a"),
            await control.fork_workflow_async(workflow, 2, key="b"),
            (await control.health_async()).ok,
        )

    blocking = control.fork_workflow(workflow, 2, key="a")
    first, second, healthy = asyncio.run(forked())
    assert (first.replayed, second.replayed, healthy) == (True, False, True)
    assert control.fork_workflow(workflow, 2, key="b").replayed
    assert sorted(running.forks(workflow)) == sorted(
        [str(blocking.new_workflow_id), str(second.new_workflow_id)]
    )


def test_from_outside(control_with: Controls, running: Running) -> None:
    """A `DBOSClient` in place of DBOS: the same records, the same ids."""
    client = DBOSClient(system_database_url=running.url)
    outside, inside = control_with(client), control_with()
    workflow = running.finished()
    assert not outside.fork_workflow(workflow, 2, key="k").replayed
    assert inside.fork_workflow(workflow, 2, key="k").replayed
    assert outside.cancel_workflow(workflow, key="c").status == "SUCCESS"  # it had ended
    assert outside.resume_workflow(workflow, key="r").status == "SUCCESS"
    assert outside.health().ok
    with pytest.raises(ConfigurationError, match="enqueue_workflow"):
        outside.start_workflow(report, 1, key="s")
    client.destroy()


def test_children(control: WorkflowControl, running: Running) -> None:
    """`cancel_children`, which is an argument like the others."""
    with Held():
        workflow = DBOS.start_workflow(parent, 2).workflow_id
        wait_until(lambda: len(DBOS.list_workflows(parent_workflow_id=workflow)) == 1)
        control.cancel_workflow(workflow, key="k", cancel_children=True)
        [child] = DBOS.list_workflows(parent_workflow_id=workflow)
        assert child.status == "CANCELLED"
        with pytest.raises(KeyReused):
            control.cancel_workflow(workflow, key="k")


def test_not_by_a_workflow_itself(control: WorkflowControl, running: Running) -> None:
    """DBOS would count what is done as steps, and a replay does fewer.  In a step it works."""
    workflow = running.finished()

    @DBOS.workflow(name="controls")
    def controls() -> str:
        control.cancel_workflow(workflow, key="w")
        return "done"

    @DBOS.step(name="cancels")
    def cancels() -> str:
        return control.cancel_workflow(workflow, key="w").status

    @DBOS.workflow(name="controls in a step")
    def controls_in_a_step() -> str:
        return cancels()

    with pytest.raises(ConfigurationError, match=r"@DBOS\.step"):
        controls()
    assert controls_in_a_step() == "SUCCESS"


def test_new_workflows_in_a_step(control: WorkflowControl, control_with: Controls, running: Running) -> None:
    """A fork works, with its derived id.  DBOS starts none there, which is said before a key is claimed; a
    client enqueues them."""
    client = DBOSClient(system_database_url=running.url)
    outside = control_with(client)
    workflow = running.finished()
    queued: EnqueueOptions = {"workflow_name": "report", "queue_name": "in-a-step"}

    @DBOS.step(name="does")
    def does(what: Callable[[], Controlled]) -> str:
        done = what()
        return done.new_workflow_id or done.workflow_id

    def within(call: Callable[[], Controlled]) -> str:
        @DBOS.workflow(name=f"within-{uuid4()}")
        def one() -> str:
            return does(call)

        return one()

    forked = within(lambda: control.fork_workflow(workflow, 1, key="f"))
    assert running.forks(workflow) == [forked]
    assert control.fork_workflow(workflow, 1, key="f").replayed
    with pytest.raises(ConfigurationError, match="no workflows within a step"):
        within(lambda: control.start_workflow(report, 1, key="s"))
    with pytest.raises(ConfigurationError, match="no workflows within a step"):
        within(lambda: control.enqueue_workflow(queued, 1, key="s"))
    assert not control.start_workflow(report, 1, key="s").replayed
    enqueued = within(lambda: outside.enqueue_workflow(queued, 1, key="e"))
    assert [one.workflow_id for one in client.list_workflows(queue_name="in-a-step")] == [enqueued]
    client.destroy()


def test_blocking_methods_in_an_event_loop(control: WorkflowControl, running: Running) -> None:
    """DBOS refuses them, and retrying would not help: the message says what to await."""
    workflow = running.finished()

    async def acts(act: Callable[[], Controlled]) -> Controlled:
        return act()

    for act in (
        lambda: control.fork_workflow(workflow, 1, key="k"),
        lambda: control.cancel_workflow(workflow, key="k"),
        lambda: control.start_workflow(report, 1, key="k"),
    ):
        with pytest.raises(ConfigurationError, match="fork_workflow_async"):
            asyncio.run(acts(act))
    assert _records(control) == 0


# --- starting workflows


def test_start(control: WorkflowControl) -> None:
    """Started once; with other arguments it is refused, where DBOS gives the first one's result."""
    first = control.start_workflow(report, 2, title="sales", key="k")
    again = control.start_workflow(report, pages=2, title="sales", key="k")
    assert (again.workflow_id, again.replayed) == (first.workflow_id, True)
    assert DBOS.retrieve_workflow(first.workflow_id).get_result() == "sales: 2 pages"
    for arguments in ((3, "sales"), (2, "costs"), (2,)):
        with pytest.raises(KeyReused):
            control.start_workflow(report, *arguments, key="k")
    with pytest.raises(KeyReused):
        control.start_workflow(parent, 2, key="k")
    assert sum(RUNS[first.workflow_id, number] for number in (1, 2, 3)) == 2


def test_what_dbos_itself_does_with_other_arguments() -> None:
    """The reason for the above."""
    for pages in (1, 2):
        with SetWorkflowID("same"):
            assert DBOS.start_workflow(report, pages).get_result() == "untitled: 1 pages"


def test_start_after_its_record_was_lost(control: WorkflowControl) -> None:
    """Its id is derived, too: DBOS finds what was started."""
    first = control.start_workflow(report, 1, key="k")
    DBOS.retrieve_workflow(first.workflow_id).get_result()
    _forget(control)
    assert control.start_workflow(report, 1, key="k").workflow_id == first.workflow_id
    assert RUNS[first.workflow_id, 1] == 1
    _forget(control)
    assert control.start_workflow(report, 2, key="k").workflow_id != first.workflow_id


def test_start_an_asynchronous_workflow(control: WorkflowControl) -> None:
    """From threads and from event loops."""
    first = control.start_workflow(report_async, 2, key="k")
    assert asyncio.run(control.start_workflow_async(report_async, 2, key="k")).replayed
    assert DBOS.retrieve_workflow(first.workflow_id).get_result() == "2 pages"


def test_enqueue(control_with: Controls, running: Running) -> None:
    """By name, from outside of the process that runs it."""
    client = DBOSClient(system_database_url=running.url)
    control = control_with(client)
    first = control.enqueue_workflow({"workflow_name": "report", "queue_name": "reports"}, 2, key="k")
    assert first.status == "ENQUEUED"
    assert control.enqueue_workflow({"workflow_name": "report", "queue_name": "reports"}, 2, key="k").replayed
    for queue, pages in (("reports", 3), ("others", 2)):
        with pytest.raises(KeyReused):
            control.enqueue_workflow({"workflow_name": "report", "queue_name": queue}, pages, key="k")
    assert len(client.list_workflows(queue_name="reports")) == 1
    inside = control_with()
    assert inside.enqueue_workflow({"workflow_name": "report", "queue_name": "reports"}, 2, key="k").replayed
    with pytest.raises(InvalidArgument, match="workflow_id"):
        control.enqueue_workflow(
            {"workflow_name": "report", "queue_name": "reports", "workflow_id": "own"}, 2, key="l"
        )
    client.destroy()


def test_duplicates_in_a_queue(control_with: Controls, running: Running) -> None:
    """`deduplication_id`: nothing was enqueued, so the key is as good as new once its place is free."""
    client = DBOSClient(system_database_url=running.url)
    control = control_with(client)
    options: EnqueueOptions = {
        "workflow_name": "report",
        "queue_name": "duplicates",
        "deduplication_id": "d",
    }
    first = control.enqueue_workflow(options, 1, key="k")
    with pytest.raises(ControlUnavailable, match="nothing was enqueued"):
        control.enqueue_workflow(options, 1, key="l")
    client.cancel_workflow(first.workflow_id)
    second = control.enqueue_workflow(options, 1, key="l")
    assert (second.status, second.replayed) == ("ENQUEUED", False)
    client.destroy()


# --- mistakes


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"workflow_id": ""}, "workflow_id '' is not valid"),
        ({"workflow_id": "a\x00"}, "printable"),
        ({"workflow_id": "w" * 513}, "1 to 512"),
        ({"workflow_id": 5}, "workflow_id is int"),
        ({"start_step": 0}, "numbered from 1"),
        ({"start_step": 2**31}, "numbered from 1"),
        ({"start_step": True}, "start_step is bool"),
        ({"start_step": "1"}, "start_step is str"),
        ({"queue_name": ""}, "queue_name '' is not valid"),
        ({"queue_name": 1}, "queue_name is int"),
        ({"application_version": "\ud800"}, "application_version"),
        ({"replacement_children": ["a"]}, "replacement_children is list"),
        ({"replacement_children": {"a": 1}}, "workflow_id is int"),
        ({"timeout_seconds": 0}, "greater than zero"),
        ({"timeout_seconds": float("nan")}, "greater than zero"),
        ({"timeout_seconds": "1"}, "timeout_seconds is str"),
    ],
)
def test_wrong_arguments(control: WorkflowControl, said: dict[str, Any], message: str) -> None:
    """Before a key is claimed, with what was found and what was expected."""
    arguments: dict[str, Any] = {"workflow_id": "w", "start_step": 1, **said}
    with pytest.raises(InvalidArgument, match=message):
        control.fork_workflow(**arguments, key="k")
    assert _records(control) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workflow_name": ""}, "workflow_name '' is not valid"),
        ({"queue_name": 5}, "queue_name is int"),
        ({"queue_name": "\ud800"}, "printable"),
        ({"workflow_id_reuse_policy": "reject"}, "the id is derived"),
        ({"duplication_policy": "return-existing", "deduplication_id": "d"}, "id of another workflow"),
        ({"attributes": {"lock": threading.Lock()}}, "comparable"),
    ],
)
def test_wrong_options_of_a_queue(control: WorkflowControl, options: dict[str, Any], message: str) -> None:
    """Among them what would have the call give the id of a workflow that is not there."""
    said: Any = {"workflow_name": "report", "queue_name": "q", **options}
    with pytest.raises(InvalidArgument, match=message):
        control.enqueue_workflow(said, 1, key="k")
    assert _records(control) == 0


def test_mistakes_when_it_is_made(control: WorkflowControl, control_with: Controls) -> None:
    """What cannot work is said at once."""
    with pytest.raises(ConfigurationError, match="neither DBOS"):
        control_with(object())
    with pytest.raises(ConfigurationError, match="commits to its own"):
        control_with(options={"effects": "database"})
    with pytest.raises(ConfigurationError, match="not a workflow"):
        control.start_workflow(len, "a", key="k")
    with pytest.raises(InvalidArgument, match="cancel_children"):
        control.cancel_workflow("w", key="k", cancel_children="yes")  # type: ignore[arg-type]  # that is it
    with pytest.raises(TypeError, match="pages"):
        control.start_workflow(report, key="k")
    with pytest.raises(InvalidArgument, match=r"pages.*lock.*has to be comparable"):
        control.start_workflow(report, threading.Lock(), key="k")
    with pytest.raises(ConfigurationError, match=r"impatient has a parameter 'wait'.*rename it"):
        control.start_workflow(impatient, wait=5, key="k")
    with pytest.raises(InvalidArgument, match="expected workflow_name"):
        control.enqueue_workflow({"queue_name": "reports"}, key="k")  # type: ignore[typeddict-item]  # that is it
    with pytest.raises(InvalidArgument, match="within=0"):
        control.health(within=0)
    assert _records(control) == 0


def test_health_without_dbos(control_with: Controls, running: Running, tmp_path_factory: Any) -> None:
    """Each database is reported for itself, and none is waited for longer than is said."""
    client = _Stuck(system_database_url=running.url)
    found = control_with(client).health(within=0.05)
    assert (found.records, found.workflows, found.ok) == (True, False, False)
    assert found.payload()["workflows"] == "unavailable"
    client.go_on.set()
    nowhere = tmp_path_factory.mktemp("nowhere") / "keys.db"
    nowhere.write_bytes(b"this is not a database" * 100)
    guard = Guard(f"sqlite:///{nowhere}", scope=scopes.service("reports"))
    broken = WorkflowControl(guard).health(within=30)
    assert (broken.records, broken.workflows) == (False, True)
    guard.close()
    client.destroy()


class _Slow(DBOSClient):
    """Takes its time for a fork, until it is let go on."""

    def __init__(self, **about: Any) -> None:
        self.entered, self.go_on = threading.Event(), threading.Event()
        super().__init__(**about)

    def fork_workflow(self, *args: Any, **kwargs: Any) -> Any:
        self.entered.set()
        assert self.go_on.wait(30)
        return super().fork_workflow(*args, **kwargs)


class _Fading(DBOSClient):
    """Loses its database once it has cancelled something."""

    lost = False

    def cancel_workflow(self, *args: Any, **about: Any) -> None:
        super().cancel_workflow(*args, **about)
        self.lost = True

    def list_workflows(self, **about: Any) -> Any:
        if self.lost:
            raise OperationalError("SELECT", {}, sqlite3.OperationalError("disk I/O error"))
        return super().list_workflows(**about)


class _Overtaken(DBOSClient):
    """Finds that another attempt has just forked, with the same id."""

    def fork_workflow(self, *args: Any, **about: Any) -> Any:
        first = super().fork_workflow(*args, **about)
        with SetWorkflowID(first.workflow_id):
            return super().fork_workflow(*args, **about)


class _Unheard(DBOSClient):
    """Resumes, and does not hear that it did."""

    def resume_workflow(self, *args: Any, **about: Any) -> Any:
        super().resume_workflow(*args, **about)
        raise OperationalError("COMMIT", {}, sqlite3.OperationalError("disk I/O error"))


class _Stuck(DBOSClient):
    """Waits for its database, as DBOS does that has lost it."""

    def __init__(self, **about: Any) -> None:
        self.go_on = threading.Event()
        super().__init__(**about)

    def list_workflows(self, **about: Any) -> Any:
        assert self.go_on.wait(30)
        return super().list_workflows(**about)


def _records(control: WorkflowControl) -> int:
    file = str(control.guard.store.path)  # type: ignore[attr-defined]  # of SQLite
    with closing(sqlite3.connect(file)) as database:
        tables = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'retrysafe_records'").fetchall()
        if not tables:
            return 0
        [counted] = database.execute("SELECT count(*) FROM retrysafe_records").fetchone()
    return int(counted)


def _forget(control: WorkflowControl) -> None:
    """Lose its records, as a database that was restored from an old backup does."""
    file = str(control.guard.store.path)  # type: ignore[attr-defined]  # of SQLite
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("DELETE FROM retrysafe_records")
