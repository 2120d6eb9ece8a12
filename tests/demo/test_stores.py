"""The demo with its keys in a store that is given: the same numbers, and no other record is touched."""

from contextlib import closing

import pytest

from retrysafe import stores
from retrysafe.stores.admin import Query
from retrysafe.testing.stores import a_claim
from tests.any_store import SHARED
from tests.demo.conftest import Start
from tests.demo.demo_process import cents, row

RUN = "import sys; from retrysafe.demo import run; sys.exit(run(seed=7, store={!r}))"


@pytest.mark.parametrize(
    "address",
    [pytest.param(name, marks=[] if name == "valkey" else pytest.mark.full) for name in SHARED],
    indirect=True,
)
def test_any_store(start: Start, address: str) -> None:
    """With keys the right amount is taken, and an abandoned record of another service stays abandoned."""
    other = a_claim("another service's")._replace(lease=0.001, hold=3600.0)
    with closing(stores.open(address, deadline=20.0)) as store:
        store.reserve(other)
        demo = start(RUN.format(address))
        assert demo.end() == 0, demo.text
        taken = [cents(cell) for cell in row(demo.text, "Money that was taken")]
        expected = [cents(cell) for cell in row(demo.text, "Money that should be taken")]
        assert taken[1:] == expected[1:]
        demo.assert_cleaned_up()
        with closing(store.open_admin()) as admin:
            [left] = admin.list(Query(standings=frozenset({"abandoned"})))
            assert left.record.token == other.token
            shops = {dict(found.record.scope).get("shop") for found in admin.list(Query(), limit=1000)}
        assert len(shops - {None}) == 2, "one for each run with keys"
