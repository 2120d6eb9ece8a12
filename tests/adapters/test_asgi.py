"""The plain ASGI middleware against the reference application."""

from retrysafe.testing.adapters import AdapterSuite, Enforcement, Memory, Stored


class TestOneProcess(AdapterSuite):
    framework = "asgi"


class TestThreeProcesses(AdapterSuite):
    framework = "asgi"
    workers = 3


class TestMemory(Enforcement, Stored):
    """A smoke test: the store that is for tests behaves as the one that is not."""

    framework = "asgi"
    backing = Memory()
