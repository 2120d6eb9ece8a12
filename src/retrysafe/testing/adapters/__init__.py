"""The adapter suite: what a client can see, proved over real sockets.

An adapter proves itself by a reference application of its own (see `retrysafe.testing.reference`)
and

    class TestAsgi(AdapterSuite):
        framework = "asgi"
        workers = 3

`backing` chooses the store, SQLite unless said otherwise, and `options` what else the reference
application is told.  What a server keeps the adapter from doing is declared as `cannot`, see
`limits.py`.  Which line of the checklist is proved by which test says
`python -m retrysafe.testing.adapters.table`.  With `RETRYSAFE_LONG=1` in the environment, what
looks for races looks ten times as long.
"""

import pytest

_SECTIONS = "syntax enforcement passing concurrency fingerprint stored fidelity scope clock crash outage"
# Before they are imported, so that a failed assertion shows its values.
pytest.register_assert_rewrite(
    *(f"{__name__}.{module}" for module in ["suite", "client", *_SECTIONS.split()])
)

from retrysafe.testing.adapters.clock import Clock  # noqa: E402
from retrysafe.testing.adapters.concurrency import Concurrency  # noqa: E402
from retrysafe.testing.adapters.crash import Crash  # noqa: E402
from retrysafe.testing.adapters.enforcement import Enforcement  # noqa: E402
from retrysafe.testing.adapters.fidelity import Fidelity  # noqa: E402
from retrysafe.testing.adapters.fingerprint import Fingerprint  # noqa: E402
from retrysafe.testing.adapters.outage import Outage  # noqa: E402
from retrysafe.testing.adapters.passing import Passing  # noqa: E402
from retrysafe.testing.adapters.scope import Scope  # noqa: E402
from retrysafe.testing.adapters.server import Backing, Memory, Sqlite  # noqa: E402
from retrysafe.testing.adapters.stored import Stored  # noqa: E402
from retrysafe.testing.adapters.suite import covers  # noqa: E402
from retrysafe.testing.adapters.syntax import Syntax  # noqa: E402

__all__ = [
    "AdapterSuite",
    "Backing",
    "Clock",
    "Concurrency",
    "Crash",
    "Enforcement",
    "Fidelity",
    "Fingerprint",
    "Memory",
    "Outage",
    "Passing",
    "Scope",
    "Sqlite",
    "Stored",
    "Syntax",
    "covers",
]


class AdapterSuite(
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
    Outage,
):
    """Every section."""
