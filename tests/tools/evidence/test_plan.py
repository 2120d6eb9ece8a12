"""What is planned for a size: what was asked for, no less than makes sense, in pieces of some minutes."""

from itertools import pairwise

import pytest

from tools.evidence.errors import EvidenceError
from tools.evidence.jobs import PARTS, Job, choose, chunks, scaled, shares

SIZES = (0.000_001, 0.01, 0.3, 1.0, 10.0)


def jobs(size: float, part: str) -> list[Job]:
    [found] = choose(PARTS, [part])
    return list(found.plan(size))


def said(job: Job, option: str) -> int:
    return int(job.command[job.command.index(option) + 1]) if option in job.command else 0


def asked(size: float, part: str, option: str) -> int:
    return sum(said(job, option) for job in jobs(size, part))


@pytest.mark.parametrize(
    ("part", "option", "standard"),
    [
        ("simulate", "--schedules", 5_000_000),
        ("crash-sqlite", "--kills", 2_000),
        ("crash-sqlite", "--freezes", 500),
        ("crash-postgresql", "--kills", 2_000),
        ("crash-postgresql", "--freezes", 500),
        ("crash-postgresql", "--server-kills", 50),
        ("crash-postgresql", "--outages", 20),
        ("simulate-operations", "--schedules", 1_000_000),
        ("simulate-callbacks", "--schedules", 1_000_000),
        ("crash-operations-sqlite", "--kills", 1_000),
        ("crash-operations-postgresql", "--server-kills", 25),
        ("crash-callbacks-sqlite", "--freezes", 250),
        ("crash-callbacks-postgresql", "--kills", 1_000),
        ("crash-callbacks-postgresql", "--cuts", 250),
        ("crash-mariadb", "--server-kills", 50),
        ("crash-operations-mariadb", "--kills", 1_000),
        ("crash-valkey", "--kills", 2_000),
        ("crash-callbacks-valkey", "--cuts", 250),
        ("linearize", "--histories", 1_000_000),
        ("fuzz", "--executions", 30_000_000),
    ],
)
def test_how_much(part: str, option: str, standard: int) -> None:
    """The standard is what the page promises, other sizes are so many times that, and none is nothing."""
    assert asked(1, part, option) == standard
    assert asked(10, part, option) == 10 * standard
    assert 0 < asked(0.000_001, part, option) <= asked(0.01, part, option) <= standard / 10


@pytest.mark.parametrize("size", SIZES)
def test_jobs_are_apart(size: float) -> None:
    """No two jobs have one name, or do the same."""
    planned = [job for part in PARTS for job in part.plan(size)]
    assert len({job.name for job in planned}) == len(planned)
    assert len({job.command for job in planned}) == len(planned)


@pytest.mark.parametrize("size", SIZES)
def test_seeds_are_apart(size: float) -> None:
    """No schedule is run twice, be it on another store: the rule of three counts each of them once."""
    for part in ("simulate", "simulate-operations", "simulate-callbacks"):
        planned = jobs(size, part)
        assert {job.command[2] for job in planned} == {"memory", "sqlite"}
        ranges = sorted((said(job, "--seed"), said(job, "--schedules")) for job in planned)
        for (first, number), (following, _) in pairwise(ranges):
            assert first + number == following


@pytest.mark.parametrize("size", SIZES)
def test_pieces(size: float) -> None:
    """None takes longer than whoever presses Ctrl-C likes to lose, and every part has some."""
    for part in PARTS:
        planned = part.plan(size)
        assert planned
        assert all(0 < job.expected <= 600 for job in planned), part.name


def test_an_hour_or_two() -> None:
    """The standard size, on two cores, if the guesses are right."""
    assert 3_600 < sum(job.expected for part in PARTS for job in part.plan(1)) / 2 < 7_200


def test_choice() -> None:
    """In the order of the parts; a name that none has is refused, and the answer says which there are."""
    assert [part.name for part in choose(PARTS, ["fuzz", "search"])] == ["search", "fuzz"]
    assert choose(PARTS, []) == list(PARTS)
    with pytest.raises(EvidenceError, match="'crash' is not a part: expected one of search, planted, cov"):
        choose(PARTS, ["crash"])


def test_cutting() -> None:
    """Nothing is lost between the pieces."""
    assert chunks(25, 10) == [(0, 10), (10, 10), (20, 5)]
    assert chunks(20, 10) == [(0, 10), (10, 10)]
    assert shares(10, 3) == [3, 3, 4]
    assert sum(shares(499, 20)) == 499
    assert scaled(1_000, 0.5, 10) == 500
    assert scaled(1_000, 0.001, 10) == 10
