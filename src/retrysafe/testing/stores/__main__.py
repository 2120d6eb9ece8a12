"""Run the store suite on an address: `python -m retrysafe.testing.stores URL [options of pytest]`."""

import argparse
import os
import sys
from contextlib import closing

import pytest

from retrysafe import stores
from retrysafe.errors import ConfigurationError, StoreError
from retrysafe.testing.stores import at_address

ENVIRONMENT = "RETRYSAFE_STORE"
"""As for the command line: an address in the environment is not in the list of processes."""


def main() -> int:
    arguments = argparse.ArgumentParser(
        prog="python -m retrysafe.testing.stores",
        description="Run the store suite on any store, beside whatever else is stored there.",
        epilog="What follows the address is for pytest, such as -k and -x.",
    )
    arguments.add_argument("url", nargs="?", help=f"the store's address; {ENVIRONMENT}, if not said")
    # The first alone: what follows is pytest's, and the value of one of its options is not an address.
    given, unknown = arguments.parse_known_args(sys.argv[1:2])
    url = given.url or os.environ.get(ENVIRONMENT)
    if not url:
        arguments.error(
            f"no store was given: write an address such as sqlite:///keys.db, or set {ENVIRONMENT}"
        )
    try:
        # Once, and here: a store that cannot be used would fail every test with the same message.
        with closing(stores.open(url, deadline=at_address.DEADLINE)) as store:
            store.look(os.urandom(32))
    except (ConfigurationError, StoreError) as error:
        arguments.error(str(error))
    # No configuration and no fixtures: those of the project in this folder are about other tests.
    options = ["-c", os.devnull, "-p", "no:cacheprovider", "--noconftest", "--pyargs", at_address.__name__]
    return pytest.main([*options, *unknown, *sys.argv[2:]], plugins=[at_address.Address(url)])


if __name__ == "__main__":
    sys.exit(main())
