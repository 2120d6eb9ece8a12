"""The adapter suite: what a client can see, proved over real sockets.

An adapter proves itself by a reference application of its own (see `retrysafe.testing.reference`)
and

    class TestAsgi(AdapterSuite):
        framework = "asgi"
        workers = 3

    class TestAsgiTransactions(TransactionalSuite):
        framework = "asgi"
        backing = Postgres()            # of retrysafe.testing.adapters.postgres

Most of it is the same in both modes.  What differs has a section for each: `Failures` and `Undone`, `Flowing`
and `Whole`, `Abandoned` and `TakenOver`, `Outage` and `Uncommitted`.

`backing` chooses the store, SQLite unless said otherwise, and `options` what else the reference
application is told.  What a server keeps the adapter from doing is declared as `cannot`, see
`limits.py`.  Which line of the checklist is proved by which test says
`python -m retrysafe.testing.adapters.table`.  With `RETRYSAFE_LONG=1` in the environment, what
looks for races looks ten times as long.
"""

import pytest

_SECTIONS = (
    "syntax enforcement passing concurrency fingerprint stored fidelity scope clock crash "
    "failures flowing abandoned outage undone whole takenover uncommitted"
)
# Before they are imported, so that a failed assertion shows its values.
pytest.register_assert_rewrite(
    *(f"{__name__}.{module}" for module in ["suite", "client", *_SECTIONS.split()])
)

from retrysafe.testing.adapters.abandoned import Abandoned  # noqa: E402
from retrysafe.testing.adapters.clock import Clock  # noqa: E402
from retrysafe.testing.adapters.concurrency import Concurrency  # noqa: E402
from retrysafe.testing.adapters.crash import Crash  # noqa: E402
from retrysafe.testing.adapters.enforcement import Enforcement  # noqa: E402
from retrysafe.testing.adapters.failures import Failures  # noqa: E402
from retrysafe.testing.adapters.fidelity import Fidelity  # noqa: E402
from retrysafe.testing.adapters.fingerprint import Fingerprint  # noqa: E402
from retrysafe.testing.adapters.flowing import Flowing  # noqa: E402
from retrysafe.testing.adapters.outage import Outage  # noqa: E402
from retrysafe.testing.adapters.passing import Passing  # noqa: E402
from retrysafe.testing.adapters.scope import Scope  # noqa: E402
from retrysafe.testing.adapters.server import Backing, Memory, Sqlite  # noqa: E402
from retrysafe.testing.adapters.stored import Stored  # noqa: E402
from retrysafe.testing.adapters.suite import Suite, covers  # noqa: E402
from retrysafe.testing.adapters.syntax import Syntax  # noqa: E402
from retrysafe.testing.adapters.takenover import TakenOver  # noqa: E402
from retrysafe.testing.adapters.uncommitted import Uncommitted  # noqa: E402
from retrysafe.testing.adapters.undone import Undone  # noqa: E402
from retrysafe.testing.adapters.whole import Whole  # noqa: E402

__all__ = [
    "Abandoned",
    "AdapterSuite",
    "Alike",
    "Backing",
    "Clock",
    "Concurrency",
    "Crash",
    "Enforcement",
    "Failures",
    "Fidelity",
    "Fingerprint",
    "Flowing",
    "Memory",
    "Outage",
    "Passing",
    "Scope",
    "Sqlite",
    "Stored",
    "Suite",
    "Syntax",
    "TakenOver",
    "TransactionalSuite",
    "Uncommitted",
    "Undone",
    "Whole",
    "covers",
]


class Alike(
    Syntax,
    Enforcement,
    Passing,
    Concurrency,
    Fingerprint,
    Stored,
    Fidelity,
    Scope,
    Clock,
    Crash,
):
    """What is the same in both modes."""


class AdapterSuite(Alike, Failures, Flowing, Abandoned, Outage):
    """Every section of lease mode."""


class TransactionalSuite(Alike, Undone, Whole, TakenOver, Uncommitted):
    """Every section of transactional mode."""

    tx = True
