"""Servers with trapdoors, for the tests that kill and freeze them."""

from collections.abc import Callable, Iterator

import pytest

from retrysafe.testing.adapters.server import Option
from tests.any_store import SHARED, new_on_server
from tests.faults.trapped import Trapped

StartTrapped = Callable[..., Trapped]


@pytest.fixture(params=SHARED)
def kind(request: pytest.FixtureRequest) -> str:
    """Of store.  `tests/sampling.py` says what of SQLite's tests is repeated on the others in every run."""
    return str(request.param)


@pytest.fixture(scope="session")
def start_trapped(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartTrapped]:
    """Starts the reference application with trapdoors; one for each set of options, for the whole session."""
    kept: dict[tuple[tuple[str, Option], ...], Trapped] = {}

    def start(kind: str = "sqlite", **options: Option) -> Trapped:
        name = (("kind", kind), *sorted(options.items()))
        if name not in kept:
            store = None if kind == "sqlite" else new_on_server(request, kind)
            kept[name] = Trapped.start(tmp_path_factory.mktemp("trapped"), store=store, **options)
        return kept[name]

    yield start
    for server in kept.values():
        server.end()
