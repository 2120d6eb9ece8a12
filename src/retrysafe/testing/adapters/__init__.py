"""The adapter suite: what a client can see, proved over real sockets.

An adapter proves itself by a reference application of its own (see `retrysafe.testing.reference`)
and

    class TestAsgi(AdapterSuite):
        framework = "asgi"
        workers = 3

    class TestAsgiTransactions(TransactionalSuite):
        framework = "asgi"
        backing = Postgres()            # of retrysafe.testing.adapters.postgres

Most of it is the same in both modes.  What differs has a section for each: `Failures` and `FailuresTx`,
`Streaming` and `StreamingTx`, `Abandoned` and `AbandonedTx`, `Outage` and `OutageTx`.

`backing` chooses the store, SQLite unless said otherwise, and `options` what else the reference
application is given.  What a server does not let the adapter do is declared as `cannot`, see
`limits.py`.  Which line of the checklist is proved by which test says
`python -m retrysafe.testing.adapters.table`.  With `RETRYSAFE_LONG=1` in the environment, what
looks for races looks ten times as long.
"""

import pytest

_SECTIONS = (
    "syntax enforcement passthrough concurrency fingerprint stored fidelity scope clock crash profiles "
    "failures streaming abandoned outage failures_tx streaming_tx abandoned_tx outage_tx"
)
# Before they are imported, so that a failed assertion shows its values.
pytest.register_assert_rewrite(
    *(f"{__name__}.{module}" for module in ["suite", "client", *_SECTIONS.split()])
)

from retrysafe.testing.adapters.abandoned import Abandoned  # noqa: E402
from retrysafe.testing.adapters.abandoned_tx import AbandonedTx  # noqa: E402
from retrysafe.testing.adapters.clock import Clock  # noqa: E402
from retrysafe.testing.adapters.concurrency import Concurrency  # noqa: E402
from retrysafe.testing.adapters.crash import Crash  # noqa: E402
from retrysafe.testing.adapters.enforcement import Enforcement  # noqa: E402
from retrysafe.testing.adapters.failures import Failures  # noqa: E402
from retrysafe.testing.adapters.failures_tx import FailuresTx  # noqa: E402
from retrysafe.testing.adapters.fidelity import Fidelity  # noqa: E402
from retrysafe.testing.adapters.fingerprint import Fingerprint  # noqa: E402
from retrysafe.testing.adapters.outage import Outage  # noqa: E402
from retrysafe.testing.adapters.outage_tx import OutageTx  # noqa: E402
from retrysafe.testing.adapters.passthrough import PassThrough  # noqa: E402
from retrysafe.testing.adapters.profiles import Profiles  # noqa: E402
from retrysafe.testing.adapters.scope import Scope  # noqa: E402
from retrysafe.testing.adapters.server import Backing, Memory, Sqlite  # noqa: E402
from retrysafe.testing.adapters.stored import Stored  # noqa: E402
from retrysafe.testing.adapters.streaming import Streaming  # noqa: E402
from retrysafe.testing.adapters.streaming_tx import StreamingTx  # noqa: E402
from retrysafe.testing.adapters.suite import Suite, covers  # noqa: E402
from retrysafe.testing.adapters.syntax import Syntax  # noqa: E402

__all__ = [
    "Abandoned",
    "AbandonedTx",
    "AdapterSuite",
    "Backing",
    "BothModes",
    "Clock",
    "Concurrency",
    "Crash",
    "Enforcement",
    "Failures",
    "FailuresTx",
    "Fidelity",
    "Fingerprint",
    "Memory",
    "Outage",
    "OutageTx",
    "PassThrough",
    "Profiles",
    "Scope",
    "Sqlite",
    "Stored",
    "Streaming",
    "StreamingTx",
    "Suite",
    "Syntax",
    "TransactionalSuite",
    "covers",
]


class BothModes(
    Syntax,
    Enforcement,
    PassThrough,
    Concurrency,
    Fingerprint,
    Stored,
    Fidelity,
    Scope,
    Clock,
    Crash,
    Profiles,
):
    """What is the same in both modes."""


class AdapterSuite(BothModes, Failures, Streaming, Abandoned, Outage):
    """Every section of lease mode."""


class TransactionalSuite(BothModes, FailuresTx, StreamingTx, AbandonedTx, OutageTx):
    """Every section of transactional mode."""

    tx = True
