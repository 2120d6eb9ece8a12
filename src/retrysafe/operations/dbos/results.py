"""What control of workflows gives back: outcomes, and the two failures that leave a key as it was."""

from dataclasses import dataclass
from typing import Literal, NotRequired, TypedDict

from retrysafe.errors import NotDone

Action = Literal["cancel", "resume", "fork", "start"]


class Payload(TypedDict):
    """An outcome as clients of the control API are sent it."""

    action: Action
    workflow_id: str
    status: str
    new_workflow_id: NotRequired[str]
    idempotency_replayed: bool


@dataclass(frozen=True, slots=True)
class Controlled:
    """What was done to a workflow, by this call or by an earlier one with the same key."""

    action: Action
    workflow_id: str
    status: str
    """Of the workflow right after it was done, as DBOS calls it; of a fork that of the new one.  A cancel
    that came too late finds `SUCCESS` or `ERROR`.  `UNKNOWN`: DBOS did not respond to that question."""
    new_workflow_id: str | None = None
    """Of a fork."""
    replayed: bool = False
    """Whether an earlier call did it."""

    def payload(self) -> Payload:
        found: Payload = {
            "action": self.action,
            "workflow_id": self.workflow_id,
            "status": self.status,
            "idempotency_replayed": self.replayed,
        }
        if self.new_workflow_id is not None:
            found["new_workflow_id"] = self.new_workflow_id
        return found


@dataclass(frozen=True, slots=True)
class Health:
    """Whether the two databases respond."""

    records: bool
    """That of the keys."""
    workflows: bool
    """That of DBOS."""

    @property
    def ok(self) -> bool:
        return self.records and self.workflows

    def payload(self) -> dict[str, str]:
        words = {True: "ok", False: "unavailable"}
        return {
            "status": words[self.ok],
            "records": words[self.records],
            "workflows": words[self.workflows],
        }


class InvalidArgument(ValueError):
    """An argument that cannot be right.  Nothing was asked, and no key claimed."""


class WorkflowMissing(NotDone, LookupError):
    """There is no workflow of this id.  The key is not used up: it may be created later."""

    def __init__(self, workflow_id: str) -> None:
        super().__init__(f"there is no workflow {workflow_id!r}: nothing was done")
        self.workflow_id = workflow_id


class ControlUnavailable(NotDone):
    """DBOS or its database did not respond, or the queue has a duplicate.  The key was left free: make the
    same call again with it."""


class ControlFailed(Exception):
    """DBOS failed to do it, in a way that may have left something behind; the cause is its own exception.

    It is stored as the outcome of the key.
    """
