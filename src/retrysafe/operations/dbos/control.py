"""`WorkflowControl`: cancel, resume, fork and start workflows of DBOS, each with a request key.

DBOS takes no key for them.  A fork whose response was lost and that is sent again makes a second workflow; a
workflow that is started again under its id with other arguments gives the first one's result.  Here:

- all arguments are compared: another workflow or `start_step` with the same key is refused;
- the id of a new workflow is derived from the record and the arguments.  A second attempt finds the first
  one's workflow in its place, even if the record was lost;
- so all of it is repeatable, and a call whose process died is simply made again.

DBOS writes to its own database.  Between that and the record there is no transaction, and none is needed.
"""

import asyncio
import hmac
import inspect
from asyncio import to_thread, wrap_future
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_futures
from dataclasses import replace
from functools import wraps
from threading import Lock, Thread
from time import monotonic
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, cast

from dbos import DBOS, DBOSClient, EnqueueOptions, SetWorkflowID, WorkflowStatus
from dbos import error as dbos_errors
from sqlalchemy.exc import IntegrityError, InterfaceError, OperationalError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from retrysafe._core.attempt import current
from retrysafe._core.times import Duration, seconds
from retrysafe.errors import ConfigurationError
from retrysafe.events import log
from retrysafe.guard import Guard
from retrysafe.operations import Done, OperationOptions, operation
from retrysafe.operations.dbos.results import (
    Action,
    ControlFailed,
    Controlled,
    ControlUnavailable,
    Health,
    InvalidArgument,
    WorkflowMissing,
)
from retrysafe.operations.decorate import TAKEN
from retrysafe.operations.values import NotComparable, fingerprint_value
from retrysafe.policy import Rules
from retrysafe.scopes import ScopeAnswer

P = ParamSpec("P")
T = TypeVar("T")

Workflows = type[DBOS] | DBOSClient
"""Where workflows are controlled: the DBOS of this process, or a client of another's database."""

INTERNAL_QUEUE = "_dbos_internal_queue"
"""Where DBOS puts workflows that are resumed or forked, unless a queue is named."""

_ACTIVE = frozenset({"ENQUEUED", "PENDING"})

_LONGEST_ID = 512
"""Characters of a workflow's id: far more than DBOS's own (36) and any convention's."""

_MOST_STEPS = 2**31 - 1
"""DBOS numbers steps by an integer of the database."""

LONGEST_TIMEOUT = 10**9
"""Seconds, some thirty years: DBOS counts milliseconds, in 64 bits."""

_PATIENCE = 5.0
"""Seconds until the database of DBOS is taken to be gone.  DBOS itself waits for it without end, and would
keep the caller, a thread and the key meanwhile."""

_TRANSIENT = (OperationalError, InterfaceError, PoolTimeout)
"""Trouble with the database of DBOS.  Whether a statement took effect before it is not known, and need not
be, but for a resume: made again, the call changes nothing more."""


def _in_thread(
    method: Callable[Concatenate["WorkflowControl", P], Controlled],
) -> Callable[Concatenate["WorkflowControl", P], Coroutine[Any, Any, Controlled]]:
    """The method for event loops: in a thread, as DBOS does it itself.  A caller that is cancelled
    does not cancel it: its outcome is stored."""

    @wraps(method)
    async def call(self: "WorkflowControl", /, *args: P.args, **kwargs: P.kwargs) -> Controlled:
        return await to_thread(method, self, *args, **kwargs)

    return call


class WorkflowControl:
    """Control of workflows, with the records of a guard.

    `workflows` is `DBOS`, for the workflows of this process, or a `DBOSClient`, from outside.  `options` are
    those of operations.  Each method has an asynchronous twin, which is the same call: what one did, the
    other replays.
    """

    def __init__(
        self, guard: Guard, workflows: Workflows = DBOS, **options: Unpack[OperationOptions]
    ) -> None:
        if not (isinstance(workflows, DBOSClient) or workflows is DBOS):
            raise ConfigurationError(
                f"workflows={workflows!r} is neither DBOS, for the workflows of this process, nor a client: "
                "pass DBOS or DBOSClient(...)"
            )
        if options.get("effects") == "database":
            raise ConfigurationError(
                'effects="database" means the database of the records, and DBOS commits to its own: leave it '
                'out. Control of workflows is "repeatable", because new ids are derived'
            )
        self.guard = guard
        self.workflows = workflows
        # An outcome is a few ids, and must be there for the retry, whatever holds for responses of the guard.
        said: OperationOptions = {"effects": "repeatable", "no_store": False, **_failed(guard), **options}
        self._cancel = operation(guard, action="cancel", target="workflow_id", **said)(self._do_cancel)
        self._resume = operation(guard, action="resume", target="workflow_id", **said)(self._do_resume)
        self._fork = operation(guard, action="fork", target="workflow_id", **said)(self._do_fork)
        self._start = operation(guard, action="start", target="workflow", ignore=("begin",), **said)(
            self._do_start
        )
        self._probes = (
            _Probe(lambda: guard.store.look(bytes(32))),
            _Probe(lambda: self._look("retrysafe-probe")),
        )

    @property
    def rules(self) -> Rules:
        """What holds for these operations."""
        return self._fork.rules

    def instructions(self) -> str:
        """What clients of the HTTP API have to know about keys, as Markdown: for a Skill.md."""
        from retrysafe.operations.dbos.describe import instruct  # which knows the limits of this module

        return instruct(self.rules)

    # --- what callers call

    def cancel_workflow(
        self,
        workflow_id: str,
        *,
        key: str,
        scope: ScopeAnswer = None,
        wait: Duration | None = None,
        cancel_children: bool = False,
    ) -> Controlled:
        """Cancel a workflow.  One that has ended stays as it is, which its `status` then says."""
        _check_id(workflow_id)
        if not isinstance(cancel_children, bool):
            raise InvalidArgument(f"cancel_children is {cancel_children!r}: expected True or False")
        self._check_place()
        return _controlled(
            self._cancel.keyed(key, scope=scope, wait=wait)(workflow_id, cancel_children=cancel_children)
        )

    def resume_workflow(
        self,
        workflow_id: str,
        *,
        key: str,
        scope: ScopeAnswer = None,
        wait: Duration | None = None,
        queue_name: str | None = None,
    ) -> Controlled:
        """Let a cancelled workflow go on after its last completed step."""
        _check_id(workflow_id)
        _check_text("queue_name", queue_name)
        self._check_place()
        return _controlled(
            self._resume.keyed(key, scope=scope, wait=wait)(workflow_id, queue_name=queue_name)
        )

    def fork_workflow(
        self,
        workflow_id: str,
        start_step: int,
        *,
        key: str,
        scope: ScopeAnswer = None,
        wait: Duration | None = None,
        application_version: str | None = None,
        queue_name: str | None = None,
        queue_partition_key: str | None = None,
        replacement_children: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> Controlled:
        """Start a copy of a workflow at one of its steps.  `new_workflow_id` is the copy's."""
        _check_id(workflow_id)
        _check_step(start_step)
        for name, text in (
            ("application_version", application_version),
            ("queue_name", queue_name),
            ("queue_partition_key", queue_partition_key),
        ):
            _check_text(name, text)
        _check_children(replacement_children)
        _check_timeout(timeout_seconds)
        self._check_place()
        return _controlled(
            self._fork.keyed(key, scope=scope, wait=wait)(
                workflow_id,
                start_step,
                application_version=application_version,
                queue_name=queue_name,
                queue_partition_key=queue_partition_key,
                replacement_children=dict(replacement_children) if replacement_children else None,
                timeout_seconds=float(timeout_seconds) if timeout_seconds is not None else None,
            )
        )

    def start_workflow(
        self,
        workflow: Callable[..., object],
        /,
        *args: Any,
        key: str,
        scope: ScopeAnswer = None,
        wait: Duration | None = None,
        **kwargs: Any,
    ) -> Controlled:
        """Start a workflow of this process in the background.  Its id is derived; the same key with other
        arguments is refused, where DBOS would give the first one's result."""
        if not (isinstance(self.workflows, type)):
            raise ConfigurationError(
                "start_workflow needs the workflow's code, which a DBOSClient does not have: use "
                "enqueue_workflow"
            )
        name = name_of_workflow(workflow)
        bound = inspect.signature(workflow).bind(*args, **kwargs).arguments
        _check_comparable("arguments", bound)
        self._check_place(starts=True)

        def begin(new_id: str) -> None:
            with SetWorkflowID(new_id):
                DBOS.start_workflow(workflow, *args, **kwargs)

        return _controlled(self._start.keyed(key, scope=scope, wait=wait)(name, bound, begin))

    def enqueue_workflow(
        self,
        options: EnqueueOptions,
        /,
        *args: Any,
        key: str,
        scope: ScopeAnswer = None,
        wait: Duration | None = None,
        **kwargs: Any,
    ) -> Controlled:
        """Enqueue a workflow by its name, as `DBOSClient.enqueue` does, with a derived id."""
        if "workflow_name" not in options or "queue_name" not in options:
            raise InvalidArgument(f"options are {sorted(options)}: expected workflow_name and queue_name")
        _check_text("workflow_name", options["workflow_name"])
        _check_text("queue_name", options["queue_name"])
        for name in ("workflow_id", "workflow_id_reuse_policy"):
            if name in options:
                raise InvalidArgument(
                    f"{name} is {options.get(name)!r}: leave it out, the id is derived from the key"
                )
        if options.get("duplication_policy") == "return-existing":
            # A retry after the other workflow has ended would enqueue one that the first attempt did not.
            raise InvalidArgument(
                "duplication_policy is 'return-existing', which gives the id of another workflow than the "
                "key's: leave it out, and a duplicate is refused with ControlUnavailable"
            )
        _check_comparable("options", options)
        _check_comparable("arguments", (args, kwargs))
        self._check_place(starts=True)

        def begin(new_id: str) -> None:
            said: EnqueueOptions = {**options, "workflow_id": new_id}
            if isinstance(self.workflows, DBOSClient):
                self.workflows.enqueue(said, *args, **kwargs)
            else:
                self.workflows.enqueue_workflow_with_options(said, *args, **kwargs)

        arguments = {"options": {**options}, "args": list(args), "kwargs": kwargs}
        return _controlled(
            self._start.keyed(key, scope=scope, wait=wait)(options["workflow_name"], arguments, begin)
        )

    def health(self, within: Duration = 2.0) -> Health:
        """Whether both databases respond within this time.  It takes no key: nothing is changed."""
        patience = _patience(within)
        asked = [probe.begin() for probe in self._probes]
        done, _ = wait_for_futures(asked, patience)
        return Health(*(one in done and one.result() for one in asked))

    # --- the same for event loops

    cancel_workflow_async = _in_thread(cancel_workflow)
    resume_workflow_async = _in_thread(resume_workflow)
    fork_workflow_async = _in_thread(fork_workflow)
    start_workflow_async = _in_thread(start_workflow)
    enqueue_workflow_async = _in_thread(enqueue_workflow)

    async def health_async(self, within: Duration = 2.0) -> Health:
        """As `health`."""
        patience = _patience(within)
        asked = [wrap_future(probe.begin()) for probe in self._probes]
        done, _ = await asyncio.wait(asked, timeout=patience)
        return Health(*(one in done and one.result() for one in asked))

    # --- what is done once

    def _do_cancel(self, workflow_id: str, *, cancel_children: bool = False) -> Controlled:
        self._find(workflow_id)  # DBOS cancels what there is not, and says nothing
        self._act(lambda: self.workflows.cancel_workflow(workflow_id, cancel_children=cancel_children))
        return self._report("cancel", workflow_id)

    def _do_resume(self, workflow_id: str, *, queue_name: str | None = None) -> Controlled:
        resumed_before = _is_resumed(self._find(workflow_id), queue_name)
        if not (current().number > 1 and resumed_before):
            try:
                self._act(lambda: self.workflows.resume_workflow(workflow_id, queue_name=queue_name))
            except ControlUnavailable:
                # The response of the database was lost, and what is free again would be resumed again.
                if resumed_before or not _is_resumed(self._find(workflow_id), queue_name):
                    raise
        return self._report("resume", workflow_id)

    def _do_fork(
        self,
        workflow_id: str,
        start_step: int,
        *,
        application_version: str | None = None,
        queue_name: str | None = None,
        queue_partition_key: str | None = None,
        replacement_children: dict[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> Controlled:
        self._find(workflow_id)
        new_id = _derived_id(self.guard.runtime.secret, "fork")
        every: dict[str, Any] = {
            "application_version": application_version,
            "queue_name": queue_name,
            "queue_partition_key": queue_partition_key,
            "replacement_children": replacement_children,
            "timeout_seconds": timeout_seconds,
        }
        said = {name: value for name, value in every.items() if value is not None}

        def fork() -> None:
            with SetWorkflowID(new_id):
                self.workflows.fork_workflow(workflow_id, start_step, **said)

        if not self._is_forked(new_id, workflow_id):
            try:
                self._act(fork)
            except ControlFailed as failed:
                # The id is taken, where an attempt that was overtaken has forked in between.
                if not (
                    isinstance(failed.__cause__, IntegrityError) and self._is_forked(new_id, workflow_id)
                ):
                    raise
        return self._report("fork", workflow_id, new_id)

    def _do_start(
        self, workflow: str, arguments: Mapping[str, object], begin: Callable[[str], None]
    ) -> Controlled:
        del workflow, arguments  # compared, and in the id
        new_id = _derived_id(self.guard.runtime.secret, "start")
        if self._ask(new_id) is None:  # else it was started by an attempt that was interrupted
            self._act(lambda: begin(new_id))
        return self._report("start", new_id)

    # --- how DBOS is asked

    def _look(self, workflow_id: str) -> WorkflowStatus | None:
        found = self.workflows.list_workflows(workflow_ids=[workflow_id], load_input=False, load_output=False)
        return found[0] if found else None

    def _ask(self, workflow_id: str) -> WorkflowStatus | None:
        """The workflow, before anything is done to it: whatever fails here has changed nothing."""
        if not self._probes[1].responds(_PATIENCE):
            raise ControlUnavailable(f"the database of DBOS did not respond within {_PATIENCE:g} seconds")
        try:
            return self._look(workflow_id)
        except Exception as error:
            raise ControlUnavailable(
                f"DBOS could not be asked for {workflow_id!r}: {_words(error)}"
            ) from error

    def _find(self, workflow_id: str) -> WorkflowStatus:
        found = self._ask(workflow_id)
        if found is None:
            raise WorkflowMissing(workflow_id)
        return found

    def _is_forked(self, new_id: str, workflow_id: str) -> bool:
        found = _reachable(lambda: self._look(new_id))
        return found is not None and found.forked_from == workflow_id

    def _act(self, action: Callable[[], object]) -> None:
        attempt = current()
        if attempt.leased and (attempt.lost or attempt.lease_ends < monotonic()):
            # This process stood still.  Another attempt may have done it since, and what came after that, as
            # the resume of what is to be cancelled here, must not be undone.
            raise ControlUnavailable("the lease of this attempt ran out before anything was done")
        try:
            _reachable(action)
        except ControlUnavailable:
            raise
        except dbos_errors.DBOSNonExistentWorkflowError as missing:
            raise ControlUnavailable(f"the workflow was deleted meanwhile: {missing}") from missing
        except dbos_errors.DBOSQueueDeduplicatedError as taken:
            raise ControlUnavailable(f"nothing was enqueued: {taken}") from taken
        except Exception as error:
            raise ControlFailed(_words(error)) from error

    def _report(self, action: Action, workflow_id: str, new_id: str | None = None) -> Controlled:
        # What was asked for was done, whatever DBOS says now: a failure here must not have it done again.
        try:
            found = self._look(new_id or workflow_id)
            status: str = found.status if found else "DELETED"
        except Exception as error:  # noqa: BLE001 - as above
            log.warning("workflow control: the status after %s is not known: %s", action, _words(error))
            status = "UNKNOWN"
        return Controlled(action, workflow_id, status, new_id)

    def _check_place(self, *, starts: bool = False) -> None:
        if not isinstance(self.workflows, type):
            return
        if _in_event_loop():
            raise ConfigurationError(
                "WorkflowControl was called where an event loop is running, which DBOS refuses: await the "
                "asynchronous method instead, such as fork_workflow_async"
            )
        if starts and DBOS.step_id is not None:
            raise ConfigurationError(
                "DBOS starts no workflows within a step: call this outside of workflows, or give "
                "WorkflowControl a DBOSClient and use enqueue_workflow"
            )
        if DBOS.workflow_id is not None and DBOS.step_id is None:
            raise ConfigurationError(
                "WorkflowControl was called by a workflow outside of its steps: DBOS would number what it "
                "does as steps, and a replay does less. Call it in a function with @DBOS.step()"
            )


def _failed(guard: Guard) -> OperationOptions:
    """What the guard says of failures, over what repeatable effects imply."""
    return {"failed": guard.rules.policy.failed} if "failed" in guard.options else {}


def _controlled(done: Done[Controlled]) -> Controlled:
    return replace(done.value, replayed=True) if done.replayed else done.value


def _derived_id(secret: bytes, name: str) -> str:
    """The id of a new workflow, as a UUID: the same on every attempt, another for other arguments.

    Not by `current().derive()`, after which it would count as used: whether this one was is seen in DBOS.
    Version 8 is for ids that are made in ways of one's own (RFC 9562 section 5.8).
    """
    claim = current().claim
    digits = hmac.digest(secret, claim.id + f"dbos {name}".encode() + claim.fingerprint, "sha256").hex()
    variant = "89ab"[int(digits[16], 16) % 4]
    return f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:32]}"


def _is_resumed(found: WorkflowStatus, queue_name: str | None) -> bool:
    """Whether it looks as an earlier attempt would have left it.

    To resume it once more would run its current step a second time beside the first.
    """
    return found.status in _ACTIVE and found.queue_name == (queue_name or INTERNAL_QUEUE)


def _reachable(ask: Callable[[], T]) -> T:
    try:
        return ask()
    except _TRANSIENT as error:
        raise ControlUnavailable(f"trouble with the database of DBOS: {_words(error)}") from error


def _words(error: Exception) -> str:
    """What an error says; of a database's its own words, without the statement and what was in it."""
    said = (isinstance(error, StatementError) and error.orig) or error
    return f"{type(error).__name__}: {said}"


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def name_of_workflow(workflow: Callable[..., object]) -> str:
    """Of one that can be started with a key."""
    name: object = getattr(workflow, "dbos_function_name", None)
    if not isinstance(name, str):
        raise ConfigurationError(f"{workflow!r} is not a workflow: decorate it with @DBOS.workflow()")
    if taken := sorted(TAKEN & inspect.signature(workflow).parameters.keys()):
        raise ConfigurationError(
            f"the workflow {name} has a parameter {taken[0]!r}, which is an argument of start_workflow(): "
            "rename it"
        )
    instance: object = getattr(workflow, "__self__", None)
    configured: object = getattr(instance, "config_name", None)
    return f"{name}@{configured}" if isinstance(configured, str) else name


class _Probe:
    """Asks in a thread of its own: DBOS waits without end for a database that is gone.

    Callers share the question that is being asked, so that threads do not pile up meanwhile.
    """

    def __init__(self, ask: Callable[[], object]) -> None:
        self._ask = ask
        self._lock = Lock()
        self._asked: Future[bool] | None = None
        self._begun = 0.0

    def begin(self) -> Future[bool]:
        """Whether it responds, once it is known."""
        with self._lock:
            asked = self._asked
            if asked is None or asked.done():
                asked = self._asked = Future[bool]()
                self._begun = monotonic()
                asked.set_running_or_notify_cancel()  # a caller that gives up does not cancel it
                Thread(target=self._run, args=[asked], name="retrysafe-health", daemon=True).start()
            return asked

    def responds(self, within: float) -> bool:
        """Whether there is a response at all, which may be an error."""
        asked = self.begin()
        # Callers that come while it is overdue already need not wait as long again.
        left = max(0.0, self._begun + within - monotonic())
        return bool(wait_for_futures([asked], left).done)

    def _run(self, asked: Future[bool]) -> None:
        try:
            self._ask()
        except Exception:  # noqa: BLE001 - whatever it is, that is the response
            asked.set_result(False)
        else:
            asked.set_result(True)


def _patience(within: Duration) -> float:
    found = seconds(within)
    if found <= 0:
        raise InvalidArgument(f"within={within!r} must be greater than zero")
    return found


# --- arguments, checked before a key is claimed


def _check_id(workflow_id: object) -> None:
    if not isinstance(workflow_id, str):
        raise InvalidArgument(f"workflow_id is {type(workflow_id).__name__}: expected a string")
    if not workflow_id.strip() or len(workflow_id) > _LONGEST_ID or not workflow_id.isprintable():
        raise InvalidArgument(
            f"workflow_id {workflow_id[:64]!r} is not valid: expected 1 to {_LONGEST_ID} printable characters"
        )


def _check_text(name: str, text: object) -> None:
    if text is None:
        return
    if not isinstance(text, str):
        raise InvalidArgument(f"{name} is {type(text).__name__}: expected a string")
    if not text or len(text) > _LONGEST_ID or not text.isprintable():
        raise InvalidArgument(
            f"{name} {text[:64]!r} is not valid: expected 1 to {_LONGEST_ID} printable characters"
        )


def _check_step(start_step: object) -> None:
    if isinstance(start_step, bool) or not isinstance(start_step, int):
        raise InvalidArgument(f"start_step is {type(start_step).__name__}: expected a whole number")
    if not 1 <= start_step <= _MOST_STEPS:
        raise InvalidArgument(f"start_step {start_step} is not valid: steps are numbered from 1")


def _check_children(children: object) -> None:
    if children is None:
        return
    if not isinstance(children, Mapping):
        raise InvalidArgument(f"replacement_children is {type(children).__name__}: expected a mapping of ids")
    for pair in cast("Mapping[object, object]", children).items():
        for one in pair:
            _check_id(one)


def _check_timeout(timeout: object) -> None:
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise InvalidArgument(f"timeout_seconds is {type(timeout).__name__}: expected a number")
    if not 0 < timeout <= LONGEST_TIMEOUT:
        raise InvalidArgument(
            f"timeout_seconds {timeout!r:.40} is not valid: expected seconds greater than zero, and at most "
            f"{LONGEST_TIMEOUT}"
        )


def _check_comparable(name: str, value: object) -> None:
    try:
        fingerprint_value(value, name=name)
    except NotComparable as error:
        raise InvalidArgument(f"{error}: what a workflow is started with has to be comparable") from None
