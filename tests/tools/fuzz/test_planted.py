"""Each target finds the bug that was put there for it, and by fuzzing: the seeds that show it are left
out."""

import pytest

from tools.fuzz import corpus
from tools.fuzz.mutator import Crash, fuzz
from tools.fuzz.planted import PLANTED, harmless
from tools.fuzz.targets import LONGEST, load


def test_every_target_has_its_bug() -> None:
    assert PLANTED.keys() == LONGEST.keys()


@pytest.mark.parametrize("target", PLANTED)
def test_it_is_found(target: str) -> None:
    """Within what takes a second or two; `python -m tools.fuzz --planted` asks the same of atheris."""
    check, seeds = load(target), corpus.seeds(target)
    what, plant = PLANTED[target]
    with plant():
        left = harmless(check, seeds)
        assert left, "no seed is left to begin with"
        with pytest.raises(Crash) as found:
            fuzz(check, left, executions=60_000, seed=1, longest=LONGEST[target])
    assert found.value.executions >= len(left), what
    check(found.value.data)  # and it was the bug: without it, the same input breaks nothing
