"""For people who write a store or an adapter of their own: the suites that ours must pass.

    class TestMyStore(StoreSuite):
        @pytest.fixture
        def store(self, clock): ...

Nothing here is imported by the library itself, and pytest only by those who ask for a suite.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retrysafe.testing.stores import ManualClock, StoreSuite

__all__ = ["ManualClock", "StoreSuite"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from retrysafe.testing import stores

    return getattr(stores, name)
