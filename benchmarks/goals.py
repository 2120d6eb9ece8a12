"""What should be reached, each with the figure that it is held against."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """A figure by its name, and a bound: at least or at most."""

    figure: str
    at_least: float | None = None
    at_most: float | None = None

    def reached(self, figures: Mapping[str, float]) -> bool | None:
        """`None`: not measured in this run."""
        value = figures.get(self.figure)
        if value is None:
            return None
        if self.at_least is not None:
            return value >= self.at_least
        assert self.at_most is not None
        return value <= self.at_most


def ratio(variant: str) -> str:
    return f"{variant}: share of the bare application"


def times(variant: str, rival: str) -> str:
    return f"{variant}: times {rival}"


CROWD_ERRORS = "errors at 128 connections"
GROWTH_RESERVE = "growth: times p50 of a reservation, 1 million records"
GROWTH_FRESH = "growth: times p50 of reserve and finish, 1 million records"
GROWTH_REPLAY = "growth: times p50 of a replay, 1 million records"
GROWTH_MEMORY = "growth: MB of process memory, 1 million records"
PURGE_TRAFFIC = "purge: traffic kept"

GOALS: list[Goal] = [
    Goal(ratio("no-key"), at_least=0.97),
    Goal(ratio("memory-fresh"), at_least=0.85),
    Goal(ratio("memory-replay"), at_least=2.00),
    Goal(times("memory-fresh", "idemkit-memory-fresh"), at_least=4),
    Goal(times("memory-replay", "idemkit-memory-replay"), at_least=4),
    Goal(ratio("sqlite-fresh"), at_least=0.50),
    Goal(ratio("sqlite-replay"), at_least=1.30),
    Goal(times("sqlite-fresh", "fik-sqlite-fresh"), at_least=5),
    Goal(times("sqlite-replay", "fik-sqlite-replay"), at_least=5),
    Goal(ratio("postgres-fresh"), at_least=0.30),
    Goal(times("postgres-fresh", "idemkit-postgres-fresh"), at_least=2),
    Goal(ratio("tx-psycopg-fresh"), at_least=0.70),
    Goal(ratio("tx-session-fresh"), at_least=0.70),
    Goal(ratio("tx-async-session-fresh"), at_least=0.70),
    Goal(ratio("tx-asyncpg-session-fresh"), at_least=0.70),
    Goal(CROWD_ERRORS, at_most=0),
    Goal(GROWTH_RESERVE, at_most=1.5),
    Goal(GROWTH_FRESH, at_most=1.5),
    Goal(GROWTH_REPLAY, at_most=1.5),
    Goal(GROWTH_MEMORY, at_most=50),
    Goal(PURGE_TRAFFIC, at_least=0.80),
]


def goal_of(figure: str) -> Goal | None:
    return next((goal for goal in GOALS if goal.figure == figure), None)
