"""retrysafe: a client retries, and the effect still happens once.

guard = Guard("sqlite:///keys.db", scope=scopes.header("X-Tenant"))
app = retrysafe.asgi.Middleware(app, guard)
"""

from retrysafe import scopes, stores
from retrysafe._core.attempt import Attempt, current
from retrysafe._core.problems import ProblemDetails
from retrysafe.errors import (
    CommitRefused,
    ConfigurationError,
    NotDone,
    NotGuarded,
    NotJoined,
    RetrysafeError,
    SchemaMismatch,
    StoreError,
    StoreReset,
    StoreUnavailable,
    UnreadableRecord,
)
from retrysafe.events import Event
from retrysafe.guard import Guard
from retrysafe.policy import Wire

__all__ = [
    "Attempt",
    "CommitRefused",
    "ConfigurationError",
    "Event",
    "Guard",
    "NotDone",
    "NotGuarded",
    "NotJoined",
    "ProblemDetails",
    "RetrysafeError",
    "SchemaMismatch",
    "StoreError",
    "StoreReset",
    "StoreUnavailable",
    "UnreadableRecord",
    "Wire",
    "current",
    "scopes",
    "stores",
]
