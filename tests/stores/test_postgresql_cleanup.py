"""Tidying up, by the lease keeper's thread."""

import logging
from collections.abc import Iterator

import pytest

from retrysafe.stores.sql import cleanup
from retrysafe.stores.sql.postgresql import PostgresStore
from retrysafe.testing.stores import a_claim, an_outcome
from retrysafe.testing.stores.harness import ended
from tests.stores.rows import PATIENT, Rows


@pytest.fixture
def rows(database: str) -> Iterator[Rows]:
    rows = Rows(database)
    yield rows
    rows.close()


@pytest.fixture
def store(rows: Rows) -> Iterator[PostgresStore]:
    store = PostgresStore(rows.url, deadline=PATIENT)
    yield store
    store.close()


def test_whoever_counts_also_tidies_up(
    store: PostgresStore, rows: Rows, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What has expired goes, slice by slice; what was never settled is said aloud; the rest stays."""
    monkeypatch.setattr(cleanup, "SLICE", 3)
    monkeypatch.setattr(cleanup, "BUDGET", PATIENT)
    for n in range(7):
        claim = a_claim(f"{n}")
        store.reserve(claim)
        store.finish(claim, an_outcome())
    store.reserve(a_claim("abandoned"))
    rows.elapse(3601.0)
    store.reserve(a_claim("alive"))
    keeper = store.open_keeper()
    with caplog.at_level(logging.WARNING, "retrysafe.store"):
        keeper.count(ended({"completed": 7}))
    assert rows.execute("SELECT key FROM retrysafe_records") == [("alive",)]
    assert [record.getMessage()[:43] for record in caplog.records] == [
        "an abandoned record expired unresolved: " + a_claim("abandoned").id.hex()[:3]
    ]
    keeper.close()


def test_trouble_does_not_stop_the_keeper(
    store: PostgresStore, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    """Leases matter more: that records could not be removed is logged, and no more."""
    store.reserve(a_claim())
    rows.elapse(3601.0)
    rows.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;"
        "CREATE TRIGGER refuse BEFORE DELETE ON retrysafe_records FOR EACH ROW EXECUTE FUNCTION refuse();"
    )
    keeper = store.open_keeper()
    with caplog.at_level(logging.WARNING, "retrysafe.store"):
        keeper.count(ended({"completed": 1}))
    assert "could not be removed: PostgreSQL: not now" in caplog.text
    assert rows.execute("SELECT count FROM retrysafe_routes") == [(1,)]
    keeper.close()
