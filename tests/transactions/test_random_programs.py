"""Random programs of several sessions, against what they would do with a connection each.

A call may refuse what cannot be told apart on one connection.  But if it answers, then what is there is what
was committed: no row more, and none less.
"""

import asyncio
import os
from collections import Counter
from random import Random
from typing import Any, NamedTuple

import pytest
from sqlalchemy import text

from retrysafe import stores
from retrysafe.sqlalchemy import begin, sessionmaker
from tests.transactions.calls import Ledger, in_thread
from tests.transactions.ledgers import INSERT, SELECT, Broken, InFile, Place, a_guard
from tests.transactions.test_semantics import ask

PROGRAMS = 3000 if os.environ.get("RETRYSAFE_LONG") else 200

DEEDS = {
    "write": 6.0,
    "commit": 5.0,
    "roll back": 4.0,
    "read": 3.0,
    "close": 2.0,
    "nest": 2.0,
    "commit nested": 1.5,
    "roll back nested": 1.5,
    "write in a block": 0.7,
    "fail in a block": 0.7,
    "err": 0.7,
}


class Program(NamedTuple):
    sessions: int
    deeds: list[tuple[int, str]]
    careless: bool
    """It catches whatever is raised, and goes on."""


def write(chance: Random) -> Program:
    sessions = chance.choice([1, 2, 2, 3])
    deeds = chance.choices(list(DEEDS), list(DEEDS.values()), k=chance.randint(3, 9))
    return Program(sessions, [(chance.randrange(sessions), deed) for deed in deeds], chance.random() < 0.5)


class Actor:
    """A session, and what it would have done on a connection of its own."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.nested: list[Any] = []
        self.pending: list[list[str]] = [[]]
        """What it has written and not committed, in each of its savepoints."""
        self.in_error = False

    def do(self, deed: str, name: str) -> list[str]:
        """What is committed by it."""
        match deed:
            case "write":
                self.session.execute(INSERT, {"name": name})
                self.pending[-1].append(name)
            case "read":
                self.session.execute(SELECT)
            case "err":
                self.in_error = True
                with pytest.raises(Exception, match="no_such"):
                    self.session.execute(text("SELECT no_such FROM items"))
            case "commit":
                written = [name for part in self.pending for name in part]
                self._end()
                self.session.commit()
                return written
            case "roll back":
                self._end()
                self.session.rollback()
            case "close":
                self._end()
                self.session.close()
            case "nest":
                self.nested.append(self.session.begin_nested())
                self.pending.append([])
            case "commit nested" if self.nested:
                self.nested.pop().commit()
                inner = self.pending.pop()
                self.pending[-1].extend(inner)
            case "roll back nested" if self.nested:
                self.pending.pop()
                self.in_error = False
                self.nested.pop().rollback()
            case _:
                pass
        return []

    def _end(self) -> None:
        self.nested, self.pending, self.in_error = [], [[]], False


class Performance:
    """One call whose handler does what a program says."""

    def __init__(self, guard: Any, program: Program) -> None:
        self.guard = guard
        self.program = program
        self.committed: list[str] = []
        self.unsure = False
        """It went on after an error as no program should: SQLAlchemy decides what was committed."""

    def handler(self) -> None:
        maker = sessionmaker(self.guard)
        actors = [Actor(maker()) for _ in range(self.program.sessions)]
        for number, (who, deed) in enumerate(
            [*self.program.deeds, *((i, "close") for i in range(len(actors)))]
        ):
            try:
                self._do(actors[who], deed, f"{deed} {number} by {who}")
            except Exception:
                if not self.program.careless:
                    raise

    def _do(self, actor: Actor, deed: str, name: str) -> None:
        if deed in ("write in a block", "fail in a block"):
            try:
                with begin(self.guard) as db:
                    db.execute(INSERT, {"name": name})
                    if deed == "fail in a block":
                        raise Broken
            except Broken:
                return
            self.committed.append(name)
        else:
            self.unsure |= actor.in_error and deed in ("commit", "commit nested")
            self.committed += actor.do(deed, name)


def test_no_row_more_and_none_less(place: Place) -> None:
    asyncio.run(_perform_all(place))


async def _perform_all(place: Place) -> None:
    guard = a_guard(stores.from_engine(place.engine))
    ledger: Any = Ledger(guard)
    seen: Counter[object] = Counter()
    expected: Counter[str] = Counter()
    for seed in range(PROGRAMS):
        performance = Performance(guard, write(Random(seed)))
        try:
            status = (await ask(ledger, in_thread(performance.handler), b"%d" % seed)).status
        except Exception as error:  # noqa: BLE001 - what the handler raised, or why its commit was refused
            seen[type(error).__name__] += 1
            status = 500
        before, there = expected, Counter(place.audit())
        # Not by their order: autovacuum frees the room of undone rows, and new ones take it.
        rows = list((there - before).elements())
        assert before <= there, (seed, performance.program)
        if status != 201:
            assert rows == [], (seed, performance.program)
        elif performance.unsure:
            assert set(rows) <= set(performance.committed), (seed, performance.program)
        else:
            assert sorted(rows) == sorted(performance.committed), (seed, performance.program)
        seen[status] += 1
        expected = there
    guard.close()
    # Or else it would show nothing.
    assert seen[201] > PROGRAMS // 2, seen
    assert seen["NotJoined"] > PROGRAMS // 50, seen
    assert isinstance(place.audit, InFile) or seen["CommitRefused"] > 0, seen
