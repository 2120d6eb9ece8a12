"""Servers with trapdoors, for the tests that kill and freeze them."""

from collections.abc import Callable, Iterator

import pytest

from retrysafe.testing.adapters.server import Option
from tests.faults.trapped import Trapped

StartTrapped = Callable[..., Trapped]


@pytest.fixture(scope="session")
def start_trapped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartTrapped]:
    """Starts the reference application with trapdoors; one for each set of options, for the whole session."""
    kept: dict[tuple[tuple[str, Option], ...], Trapped] = {}

    def start(**options: Option) -> Trapped:
        name = tuple(sorted(options.items()))
        if name not in kept:
            kept[name] = Trapped.start(tmp_path_factory.mktemp("trapped"), **options)
        return kept[name]

    yield start
    for server in kept.values():
        server.end()
