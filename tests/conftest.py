"""What holds for every test, and what most of them need."""

import gc

from tests.servers import database, postgres

__all__ = ["database", "postgres"]


def pytest_collection_finish() -> None:
    """Have the garbage collector leave alone what was made by now: thousands of tests, and their modules.

    None of it will ever be garbage, and to look through it takes half a second, which every test that counts
    what it has left behind would wait for.
    """
    gc.collect()
    gc.freeze()
