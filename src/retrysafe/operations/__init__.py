"""Operations: a function call with a key, that happens once however often it is made.

    @operation(guard, action="charge", target="order_id")
    def charge(order_id: str, amount: Decimal) -> Receipt: ...

    done = charge.once("o-1", amount, key=key)      # .value, .replayed

The third door to the engine, beside requests and callbacks: the same records, states, leases and
transactions, and no HTTP.
"""

from retrysafe.operations.decorate import AsyncOperation, Operation, operation
from retrysafe.operations.done import Done, ValueOmitted
from retrysafe.operations.plain import Once, once
from retrysafe.policy import OperationOptions
from retrysafe.refusals import (
    Failure,
    InFlight,
    KeyRefused,
    KeyReused,
    OutcomeUnknown,
    PreviouslyFailed,
    Refused,
    Unavailable,
    Undone,
)

__all__ = [
    "AsyncOperation",
    "Done",
    "Failure",
    "InFlight",
    "KeyRefused",
    "KeyReused",
    "Once",
    "Operation",
    "OperationOptions",
    "OutcomeUnknown",
    "PreviouslyFailed",
    "Refused",
    "Unavailable",
    "Undone",
    "ValueOmitted",
    "once",
    "operation",
]
