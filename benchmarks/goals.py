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


def database(variant: str) -> str:
    return f"{variant}: µs of the database"


def in_process(kind: str) -> str:
    return f"in process: µs over bare, memory, {kind}"


def growth_fresh(store: str) -> str:
    return f"growth, {store}: times p50 of a fresh key, many records"


def growth_replay(store: str) -> str:
    return f"growth, {store}: times p50 of a replay, many records"


def growth_memory(store: str) -> str:
    return f"growth, {store}: MB of process memory, many records"


def purge_traffic(store: str) -> str:
    return f"purge, {store}: share of the traffic"


CROWD_ERRORS = "errors at 128 connections"
OVERLOAD = "overload: share of the capacity at twice its load"

STORES = ("SQLite", "PostgreSQL", "MariaDB", "Valkey")
"""Those that may hold many records."""

# Shares and times are by the server's processor time: other work on the machine disturbs it far less than the
# rate.  In process, they are for an optimised CPython 3.13, and not judged on another interpreter.
GOALS: list[Goal] = [
    Goal(ratio("no-key"), at_least=0.97),
    Goal(in_process("fresh"), at_most=45),
    Goal(in_process("replay"), at_most=25),
    Goal(ratio("memory-fresh"), at_least=0.60),
    Goal(ratio("memory-replay"), at_least=0.95),
    Goal(times("memory-fresh", "idemkit-memory-fresh"), at_least=5),
    Goal(times("memory-replay", "idemkit-memory-replay"), at_least=5),
    Goal(ratio("sqlite-fresh"), at_least=0.40),
    Goal(ratio("sqlite-replay"), at_least=0.75),
    Goal(times("sqlite-fresh", "fik-sqlite-fresh"), at_least=4),
    Goal(times("sqlite-replay", "fik-sqlite-replay"), at_least=4),
    Goal(ratio("postgres-fresh"), at_least=0.42),
    Goal(ratio("postgres-replay"), at_least=0.80),
    Goal(times("postgres-fresh", "idemkit-postgres-fresh"), at_least=3.5),
    Goal(times("postgres-replay", "idemkit-postgres-replay"), at_least=3.5),
    Goal(database("postgres-fresh"), at_most=120),
    Goal(ratio("valkey-fresh"), at_least=0.50),
    Goal(ratio("valkey-replay"), at_least=0.95),
    Goal(times("valkey-fresh", "idemkit-valkey-fresh"), at_least=2.5),
    Goal(times("valkey-replay", "idemkit-valkey-replay"), at_least=2.5),
    Goal(ratio("mariadb-fresh"), at_least=0.35),
    Goal(ratio("mariadb-replay"), at_least=0.70),
    Goal(ratio("tx-session-fresh"), at_least=0.70),
    Goal(ratio("tx-session-replay"), at_least=2),
    Goal(ratio("tx-async-session-fresh"), at_least=0.60),
    Goal(ratio("tx-async-session-replay"), at_least=2),
    Goal(ratio("tx-psycopg-fresh"), at_least=0.60),
    Goal(ratio("tx-psycopg-replay"), at_least=2),
    Goal(ratio("django-no-key"), at_least=0.97),
    # "Django, own table": with the records in the project's own database, before a view that does nothing,
    # and together with a view that writes into a table of its own.  A peer that keeps them in the memory of
    # one process is measured, and is not what a table is compared with.
    *(
        Goal(ratio(f"{name}-{kind}"), at_least=share)
        for name in ("django-sqlite", "django-postgres", "tx-django", "tx-django-sqlite")
        for kind, share in (("fresh", 0.60), ("replay", 1.0))
    ),
    *(
        Goal(times(f"{ours}-{store}-{kind}", f"{peer}-{store}-{kind}"), at_least=1.3)
        for ours, peer in (("django", "dik"), ("drf", "drfik"))
        for store in ("sqlite", "postgres")
        for kind in ("fresh", "replay")
    ),
    Goal(CROWD_ERRORS, at_most=0),
    *(Goal(growth_fresh(store), at_most=1.3) for store in STORES),
    *(Goal(growth_replay(store), at_most=1.5) for store in STORES),
    *(Goal(growth_memory(store), at_most=50) for store in STORES),
    *(Goal(purge_traffic(store), at_least=0.90) for store in STORES),
    # Nothing is lost by more load; a tenth is left for what the measuring itself disturbs.
    Goal(OVERLOAD, at_least=0.90),
]


def goal_of(figure: str) -> Goal | None:
    return next((goal for goal in GOALS if goal.figure == figure), None)
