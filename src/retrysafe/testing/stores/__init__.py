"""The store suite: what `stores.contract` promises, as tests.

Subclass `StoreSuite` and give it a fixture `store`:

    class TestMyStore(StoreSuite):
        @pytest.fixture
        def store(self, clock: ManualClock) -> Iterator[Store]:
            store = MyStore(clock=clock)      # empty, and by this clock
            yield store
            store.close()

`clock` is a `ManualClock`, which stands still until a test moves it with `elapse(seconds)`.  A store whose
time is a server's overrides `elapse` instead, and moves its rows into the past.  Override `lose_lease(id)`
to let the suite remove a record's lease behind the store's back.

Every test runs against the blocking half and against `.aio`.

`python -m retrysafe.testing.stores URL` runs what can be tested of any store, in use or not, by its address.
"""

import pytest

_CHAPTERS = (
    "claims takeovers outcomes expiry details payloads purging renewals fidelity concurrency listing "
    "interventions".split()
)

# Before they are imported: a failed assertion of the suite then shows its values like one of your own.
pytest.register_assert_rewrite(*(f"{__name__}.{chapter}" for chapter in [*_CHAPTERS, "own_clock", "harness"]))

from retrysafe.testing.stores.claims import Claims  # noqa: E402
from retrysafe.testing.stores.concurrency import Concurrency  # noqa: E402
from retrysafe.testing.stores.details import Details  # noqa: E402
from retrysafe.testing.stores.expiry import Expiry  # noqa: E402
from retrysafe.testing.stores.fidelity import Fidelity  # noqa: E402
from retrysafe.testing.stores.harness import ManualClock, a_claim, an_outcome  # noqa: E402
from retrysafe.testing.stores.interventions import Interventions  # noqa: E402
from retrysafe.testing.stores.listing import Listing  # noqa: E402
from retrysafe.testing.stores.outcomes import Outcomes  # noqa: E402
from retrysafe.testing.stores.payloads import Payloads  # noqa: E402
from retrysafe.testing.stores.purging import Purging  # noqa: E402
from retrysafe.testing.stores.renewals import Renewals  # noqa: E402
from retrysafe.testing.stores.takeovers import Takeovers  # noqa: E402

__all__ = ["ManualClock", "StoreSuite", "a_claim", "an_outcome"]


class StoreSuite(
    Claims,
    Takeovers,
    Outcomes,
    Expiry,
    Details,
    Payloads,
    Purging,
    Renewals,
    Fidelity,
    Concurrency,
    Listing,
    Interventions,
):
    """All of it."""
