"""The store suite on any address, beside whatever else is stored there.

    python -m retrysafe.testing.stores URL

Each test has ids that no other record has.  Nothing is purged, migrated or dropped, so what takes an empty
store or a clock that can be moved is left out: the chapters about purges and lists, and every test that lets
time pass.  `OwnClock` has their like.
"""

import os
from collections.abc import Iterator, Sequence

import pytest

from retrysafe import stores
from retrysafe.stores.contract import Store
from retrysafe.testing.stores.claims import Claims
from retrysafe.testing.stores.concurrency import Concurrency
from retrysafe.testing.stores.fidelity import Fidelity
from retrysafe.testing.stores.harness import Harness, a_claim, identities
from retrysafe.testing.stores.outcomes import Outcomes
from retrysafe.testing.stores.own_clock import OwnClock
from retrysafe.testing.stores.renewals import Renewals
from retrysafe.testing.stores.takeovers import Takeovers

DEADLINE = 20.0
"""Seconds.  A hundred callers at once, and a busy machine, are no fault of the store."""

NOT_HERE = frozenset({"elapse", "lose_lease"})
"""Fixtures that only a store of the test's own can have."""


class Address:
    """A plugin for pytest that knows which store is meant."""

    def __init__(self, url: str) -> None:
        self._url = url

    @pytest.fixture
    def address(self) -> str:
        return self._url

    def pytest_report_header(self) -> Sequence[str]:
        # Without the rest of the address, which may contain a password.
        return [
            f"store: {self._url.partition(':')[0]}:, with records of this run only, under ids of their own",
            "no other record is read, changed or purged, no table dropped or migrated; missing tables are",
            "created, running records of this run released, and finished ones expire within an hour",
        ]

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left_out = [item for item in items if NOT_HERE & set(getattr(item, "fixturenames", ()))]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


class AtAddress(Harness):
    @pytest.fixture
    def store(self, address: str) -> Iterator[Store]:
        identities.begin(os.urandom(16))
        store = stores.open(address, deadline=DEADLINE)
        yield store
        # What is left running would be listed as abandoned, for an operator to look into.
        for id in tuple(identities.used):
            found = store.look(id)
            if found is not None and found.record.state == "in_progress":
                store.release(a_claim()._replace(id=id, token=found.record.token))
        store.close()
        identities.begin(b"")


class TestContract(AtAddress, Claims, Takeovers, Outcomes, Renewals, Fidelity, Concurrency):
    """What holds at any time."""


class TestOwnClock(AtAddress, OwnClock):
    """What time changes.  A class of its own, because tests of the same promise have the same name above."""
