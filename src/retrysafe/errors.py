"""Exceptions: misuse, trouble, and one thing a handler may say.

    RetrysafeError
    ├── ConfigurationError      built wrongly: raised where it was built, or by a scope function's first call
    ├── StoreError              trouble with the store: 503 `store-unavailable`, or `store-reset`
    │   ├── StoreUnavailable    timed out, refused or closed: may be tried again
    │   ├── UnreadableRecord    a record that makes no sense: kept, reported, never taken for absent
    │   ├── SchemaMismatch      tables of another version
    │   └── StoreReset          the records are gone, or were never here: 503 until an operator arms it
    ├── NotJoined               a session or connection that cannot be part of the running call's transaction
    ├── CommitRefused           the database refused a commit: for certain nothing of it happened
    └── NotGuarded              `current()` outside a guarded call
    NotDone                     said by a handler: "nothing has happened, let the client try again"

What goes wrong with a *request* (a malformed key, a conflict) is not an exception but a value: see
`problems.py`.  Each message says what was found, what was expected and what to do next.
"""


class RetrysafeError(Exception):
    """Everything that this library raises, `NotDone` aside."""


class ConfigurationError(RetrysafeError, ValueError):
    """Something was put together in a way that cannot work."""


class StoreError(RetrysafeError):
    """The store could not do its part."""


class StoreUnavailable(StoreError):
    """The store did not reply.  Whether it did what it was asked is not known."""


class UnreadableRecord(StoreError):
    """A stored record is damaged or of a version that this release does not know."""


class SchemaMismatch(StoreError):
    """The tables were made by another version of this library."""


class StoreReset(StoreError):
    """The store has lost its records, or is new: what looks like a new key may have been used before."""


class NotJoined(RetrysafeError, RuntimeError):
    """A session or connection cannot be part of the transaction that carries the running call's effects."""


class CommitRefused(RetrysafeError):
    """The database refused to commit what a guarded call wrote.  Everything was rolled back."""

    def __init__(self, reason: str, *, passing: bool = False) -> None:
        super().__init__(reason)
        self.passing = passing
        """Whether the same request may well succeed the next time: a serialization failure, a deadlock."""


class NotGuarded(RetrysafeError, LookupError):
    """`current()` was called where no guarded call is running."""

    def __init__(self) -> None:
        super().__init__(
            "no guarded call is running here: current() works below a handler that retrysafe protects, "
            "in the same task or thread or one started from it with its context "
            "(asyncio.to_thread, contextvars.copy_context)"
        )


class NotDone(Exception):
    """Raised by a handler: nothing has happened, and the same key may be tried again.

    The client gets 503 `not-done` with `Retry-After`, and no record is stored.  It is not believed
    after a derived key was given out or part of the response was sent: then something may have happened.
    """

    def __init__(self, detail: str | None = None, *, retry_after: float = 1.0) -> None:
        super().__init__(detail or "nothing was done")
        self.detail = detail
        self.retry_after = retry_after
