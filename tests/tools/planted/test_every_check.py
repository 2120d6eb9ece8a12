"""Every check of the simulator can fail: one that cannot keeps no promise, and that would not be noticed."""

import ast
from pathlib import Path
from types import ModuleType

import pytest

from retrysafe.testing.simulate import aftermath, answers, happenings, promises
from retrysafe.testing.simulate import world as worlds
from retrysafe.testing.simulate.promises import Violation
from tests.simulate.test_checks import CASES
from tests.tools.planted.hunted import Site, hunted, noting
from tools.planted.catalogue import CATALOGUE

MONITORS: tuple[ModuleType, ...] = (answers, promises, aftermath, worlds, happenings)


@pytest.mark.timeout(600)  # it hunts all bugs at once
def test_every_check_is_seen_to_fail() -> None:
    """By a planted bug, or by a case of `tests/simulate/test_checks.py`."""
    failed = {site for planted in CATALOGUE for site in hunted(planted).by}
    with noting() as noted:
        for case in CASES:
            with pytest.raises(Violation):
                case.breaks()
    failed |= noted
    checks = [check for module in MONITORS for check in _checks(module)]
    assert len(checks) > 60
    assert [text for text, lines in checks if not lines & failed] == []


def _checks(module: ModuleType) -> list[tuple[str, set[Site]]]:
    """Every place that says that a promise is broken: its text, and the lines it is written in."""
    assert module.__file__ is not None
    path = Path(module.__file__)
    source = path.read_text()
    return [
        (
            f"{path.name}:{node.lineno}: {ast.get_source_segment(source, node)}",
            {Site(path.name, line) for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)},
        )
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "broken"
    ]
