"""For tests of applications; and for people who write a store or an adapter, the suites that ours must pass.

    class TestMyStore(StoreSuite):
        @pytest.fixture
        def store(self, clock): ...

    def test_coverage():
        assert_protected(app, exempt=["/login"])

Nothing here is imported by the library itself, and pytest only by those who ask for a suite.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retrysafe.testing.coverage import assert_protected
    from retrysafe.testing.stores import ManualClock, StoreSuite

__all__ = ["ManualClock", "StoreSuite", "assert_protected"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "assert_protected":
        from retrysafe.testing.coverage import assert_protected

        return assert_protected
    from retrysafe.testing import stores

    return getattr(stores, name)
