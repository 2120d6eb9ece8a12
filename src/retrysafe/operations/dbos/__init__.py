"""Control of DBOS workflows with request keys: a retried fork is one fork.

    guard = Guard("sqlite:///keys.db", scope=scopes.service("reports"), profile="workflow-control")
    control = WorkflowControl(guard)
    forked = control.fork_workflow("w-1", 3, key=key)       # .new_workflow_id, .replayed

`http.py` serves it: `retrysafe.operations.dbos.http.routes(control, authenticate=…)`.
"""

from retrysafe.operations.dbos.control import WorkflowControl
from retrysafe.operations.dbos.results import (
    ControlFailed,
    Controlled,
    ControlUnavailable,
    Health,
    InvalidArgument,
    Payload,
    WorkflowMissing,
)

__all__ = [
    "ControlFailed",
    "ControlUnavailable",
    "Controlled",
    "Health",
    "InvalidArgument",
    "Payload",
    "WorkflowControl",
    "WorkflowMissing",
]
