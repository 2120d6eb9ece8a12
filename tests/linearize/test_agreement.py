"""The fast checker and the slow one agree, on random histories."""

from random import Random

import pytest

from retrysafe.testing.linearize import MODES, History, Mode, Operation, ResponseKind, check, is_linearizable
from retrysafe.testing.linearize.explain import contradicting
from retrysafe.testing.linearize.generate import good
from retrysafe.testing.linearize.mutate import MUTATIONS, bad
from tests.linearize import reference

# Dice that fall on everything; on what decides before FINAL; on owners that lose the key.
DICE: tuple[tuple[ResponseKind, ...], ...] = (
    ("first", "replay", "in-flight", "mismatch", "unknown", "open", "nothing"),
    ("in-flight", "in-flight", "mismatch", "unknown", "open", "open", "nothing"),
    ("in-flight", "in-flight", "mismatch", "replay", "open", "first"),
)


def anything(random: Random, most: int) -> History:
    """A history as it comes: times collide, and little of it makes sense."""
    span = random.choice((3, 6, 12))
    asked = random.choice(("a", "ab", "ab", "abc"))
    dice = random.choice(DICE)
    history: History = []
    for _ in range(random.randint(1, most)):
        received = random.choice(dice)
        if received == "first" and any(other.received == "first" for other in history):
            received = "in-flight"
        began = random.randint(0, span)
        ended = None if received == "nothing" else began + random.randint(0, span // 2 + 1)
        if received == "open" and random.random() < 0.3:
            ended = None
        response = random.choice((b"x",) * 9 + (b"y",)) if received in ("first", "replay") else b""
        history.append(Operation(began, ended, random.choice(asked), received, response))
    return history


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mode", MODES)
def test_on_anything(mode: Mode, seed: int) -> None:
    """Good and bad by chance, both often enough: exactly the same verdicts."""
    random = Random(f"{mode} {seed}")
    verdicts = [0, 0]
    for _ in range(1_500):
        history = anything(random, 6)
        verdict = is_linearizable(history, mode)
        assert verdict == reference.is_linearizable(history, mode), history
        verdicts[verdict] += 1
    assert min(verdicts) > 150


@pytest.mark.parametrize("mode", MODES)
def test_on_what_is_known_by_its_making(mode: Mode) -> None:
    """The generator makes good histories and the mutations bad ones by the reference's judgement, too."""
    random = Random(f"made {mode}")
    for _ in range(600):
        history = good(random, mode, 6)
        mutated, mutation = bad(random, history, mode)
        assert reference.is_linearizable(history, mode), history
        assert not reference.is_linearizable(mutated, mode), (mutation, mutated)


def test_every_mutation_is_made() -> None:
    """None of them is there for show."""
    random = Random(1)
    made = {bad(random, good(random, mode, 6), mode)[1] for _ in range(300) for mode in MODES}
    assert made == set(MUTATIONS)
    assert all(mutation.__doc__ for mutation in MUTATIONS)


@pytest.mark.parametrize("mode", MODES)
def test_a_contradiction_is_one_and_no_more(mode: Mode) -> None:
    """What an explanation names cannot be true together; and without any one of them, it can."""
    random = Random(f"why {mode}")
    for _ in range(300):
        history, _ = bad(random, good(random, mode, 6), mode)
        named = contradicting(history, mode)
        assert named
        left = [
            operation if number in named else operation._replace(ended=None, received="nothing", response=b"")
            for number, operation in enumerate(history)
        ]
        assert not is_linearizable(left, mode)
        for number in named:
            without = list(left)
            without[number] = left[number]._replace(ended=None, received="nothing", response=b"")
            assert is_linearizable(without, mode)
        why = check(history, mode=mode)
        assert why is not None
        assert all(f"#{number}" in why for number in named)


@pytest.mark.parametrize("mode", MODES)
def test_long_ones_are_judged_in_no_time(mode: Mode) -> None:
    """Forty operations of one crash run, good and bad.  A search without memory would take for ever."""
    random = Random(f"long {mode}")
    for _ in range(100):
        history = good(random, mode, 40)
        assert is_linearizable(history, mode)
        mutated, _ = bad(random, history, mode)
        assert not is_linearizable(mutated, mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_crowd_is_judged_in_no_time(mode: Mode) -> None:
    """A hundred at once, of which none can have had the key before all had ended."""
    crowd = [Operation(0, 5, "pay", "in-flight")] * 100
    assert not is_linearizable([*crowd, Operation(6, 7, "pay", "first", b"201")], mode)
    assert is_linearizable([*crowd, Operation(4, 7, "pay", "first", b"201")], mode)
