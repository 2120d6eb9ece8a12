"""The store contract, for people who write a store: everything they need is public."""

import ast
import typing
from pathlib import Path

import pytest

from retrysafe.stores import admin, contract
from retrysafe.stores.contract import Store
from retrysafe.testing import ManualClock
from retrysafe.testing.stores.claims import Claims
from retrysafe.testing.stores.concurrency import Concurrency
from retrysafe.testing.stores.expiry import Expiry
from retrysafe.testing.stores.fidelity import Fidelity
from retrysafe.testing.stores.outcomes import Outcomes
from retrysafe.testing.stores.purging import Purging
from retrysafe.testing.stores.renewals import Renewals
from retrysafe.testing.stores.takeovers import Takeovers
from tests.stores import own_store
from tests.stores.own_store import OwnStore


class TestOwnStore(Claims, Takeovers, Outcomes, Expiry, Purging, Renewals, Fidelity, Concurrency):
    """A store that is written with public names alone passes the suite, its operator's end aside."""

    @pytest.fixture
    def store(self, clock: ManualClock) -> Store:
        return OwnStore(clock)


def test_the_own_store_imports_public_modules_only() -> None:
    """No module of ours that it names is private."""
    tree = ast.parse(Path(own_store.__file__).read_text(encoding="utf-8"))
    ours = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    assert "retrysafe.stores.contract" in ours
    assert [name for name in ours if name.startswith("retrysafe") and "._" in name] == []


@pytest.mark.parametrize("kind", [contract.Store, contract.AsyncStore, contract.Renewer, admin.Admin])
def test_the_contract_exports_what_it_names(kind: type) -> None:
    """Every type of ours in a signature can be imported from the contract or from the operator's half."""
    public = {id(getattr(module, name)) for module in (contract, admin) for name in module.__all__}
    named = [
        part
        for name, method in vars(kind).items()
        if not name.startswith("_")
        for hint in typing.get_type_hints(getattr(method, "fget", method)).values()
        for part in _parts(hint)
        if getattr(part, "__module__", "").startswith("retrysafe")
    ]
    assert named
    assert [part for part in named if id(part) not in public] == []


def _parts(hint: object) -> list[object]:
    """A type, and the types that it is made of."""
    return [hint, *(part for argument in typing.get_args(hint) for part in _parts(argument))]
