"""For the tests of an application, and for people who write a store or an adapter of their own.

    def test_paying_twice(client):
        assert_idempotent(client, "POST", "/pay", json={"amount": 5}, effects=lambda: count("payments"))

    class TestMyStore(StoreSuite):
        @pytest.fixture
        def store(self, clock): ...

    def test_coverage():
        assert_protected(app, exempt=["/login"])

Nothing here is imported by the library itself, and pytest only by those who ask for a suite.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retrysafe.testing.assertions import assert_idempotent, assert_idempotent_async
    from retrysafe.testing.coverage import assert_protected
    from retrysafe.testing.stores import ManualClock, StoreSuite

__all__ = ["ManualClock", "StoreSuite", "assert_idempotent", "assert_idempotent_async", "assert_protected"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "assert_protected":
        from retrysafe.testing.coverage import assert_protected

        return assert_protected
    if name.startswith("assert_"):
        from retrysafe.testing import assertions

        return getattr(assertions, name)
    from retrysafe.testing import stores

    return getattr(stores, name)
