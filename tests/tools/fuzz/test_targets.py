"""Every target on its seeds and on what Hypothesis thinks of."""

from functools import partial
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrysafe._core import keys
from tools.fuzz import corpus
from tools.fuzz.mutator import Crash, fuzz, mutated
from tools.fuzz.targets import LONGEST, Broken, load

TARGETS = tuple(LONGEST)


@pytest.mark.parametrize("target", TARGETS)
def test_seeds(target: str) -> None:
    """None of them is empty-handed: each target has some, each fits, and none breaks a promise."""
    seeds = corpus.seeds(target)
    assert len(seeds) == len(set(seeds)) >= 5
    check = load(target)
    for data in seeds:
        assert len(data) <= LONGEST[target]
        check(data)


@pytest.mark.parametrize("longest", [254, 256])
def test_the_limit_of_keys_is_reached(longest: int) -> None:
    """By the seeds alone: a limit that is off by one is noticed."""
    wrong = partial(keys.parse_key, longest=longest)
    with patch("retrysafe._core.keys.parse_key", wrong), pytest.raises(Broken):
        _try_seeds("key")


@pytest.mark.parametrize("deepest", [99, 101])
def test_the_limit_of_nesting_is_reached(deepest: int) -> None:
    """The same of JSON."""
    with patch("retrysafe._core.fingerprint.canonical.DEEPEST", deepest), pytest.raises(Broken):
        _try_seeds("canonical")


def _try_seeds(target: str) -> None:
    for data in corpus.seeds(target):
        load(target)(data)


@pytest.mark.parametrize("target", TARGETS)
def test_by_hypothesis(target: str) -> None:
    """Any bytes, and seeds with a few changes."""
    check, seeds = load(target), corpus.seeds(target)

    @settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(
        st.binary(max_size=2 * LONGEST[target])
        | st.builds(
            lambda seed, number: mutated(Random(number), seed, seeds),
            st.sampled_from(seeds),
            st.integers(0, 2**32),
        )
    )
    def examples(data: bytes) -> None:
        check(data)

    examples()


@pytest.mark.parametrize("target", TARGETS)
def test_by_chance(target: str) -> None:
    """A few thousand seeds with changes, the same ones every time."""
    fuzz(load(target), corpus.seeds(target), executions=3_000, seed=1, longest=LONGEST[target])


def test_the_mutator_says_what_it_crashed_on() -> None:
    """With the input, how many came before it, and what was raised."""

    def check(data: bytes) -> None:
        if b"x" in data:
            raise KeyError(data)

    with pytest.raises(Crash) as found:
        fuzz(check, [b"a", b"b", b"x", b"c"], executions=10, seed=1, longest=4)
    assert (found.value.data, found.value.executions) == (b"x", 2)
    assert isinstance(found.value.__cause__, KeyError)


def test_the_mutator_is_the_same_every_time() -> None:
    """By its seed; and another seed is another run."""

    def inputs(seed: int) -> list[bytes]:
        seen: list[bytes] = []
        fuzz(seen.append, [b"seed", b"other"], executions=50, seed=seed, longest=16)
        return seen

    assert inputs(7) == inputs(7) != inputs(8)
