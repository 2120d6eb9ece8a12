"""Counts the rows that each intended action has left: `python -m examples.agent_platform.audit`.

The same key never makes two rows, whatever was lost, cut off, killed and sent again: there is one for each
intent, and there are as many turns as actions.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Engine, orm, select

from examples.agent_platform.models import (
    Action,
    Agent,
    Dweller,
    Feedback,
    Heartbeat,
    Intended,
    Proposal,
    Story,
    digest,
)

TABLES: tuple[type[Intended], ...] = (Agent, Action, Heartbeat, Story, Proposal, Feedback)


class Response(NamedTuple):
    """What an agent got for what it intended."""

    table: type[Intended]
    intent: str
    status: int
    document: Mapping[str, Any]


def rows(engine: Engine, prefix: str = "") -> Counter[str]:
    """How many rows each intent has left, of those that begin with the prefix."""
    found: Counter[str] = Counter()
    with orm.Session(engine) as session:
        for table in TABLES:
            intents = session.scalars(select(table.intent).where(table.intent.startswith(prefix)))
            found.update(f"{table.__tablename__}: {intent}" for intent in intents)
    return found


def audit(engine: Engine, responses: Iterable[Response] = (), prefix: str = "") -> list[str]:
    """What does not add up, in sentences."""
    doubled = [f"{what} has {times} rows" for what, times in rows(engine, prefix).items() if times > 1]
    with orm.Session(engine) as session:
        return [*doubled, *_turns(session), *(text for one in responses for text in _compare(session, one))]


def _turns(session: orm.Session) -> Iterator[str]:
    acted = Counter(session.scalars(select(Action.dweller_id)))
    for dweller in session.scalars(select(Dweller)):
        if dweller.turns != acted[dweller.id]:
            yield f"dweller {dweller.id} had {dweller.turns} turns, and there are {acted[dweller.id]} actions"


def _compare(session: orm.Session, response: Response) -> Iterator[str]:
    """Whether the row of the response is there, and says the same."""
    what = f"{response.table.__tablename__}: {response.intent}"
    if response.status != 201:
        yield f"{what} got {response.status} {response.document}"
        return
    row = session.get(response.table, response.document["id"])
    if row is None:
        yield f"{what} has the number {response.document['id']}, which does not exist"
        return
    stored: dict[str, Any] = {name: getattr(row, name, None) for name in response.document}
    said = dict(response.document)
    if isinstance(row, Agent):
        said["secret"] = digest(said["secret"])
        stored["dweller"] = session.scalar(select(Dweller.id).where(Dweller.agent_id == row.id))
    if stored != {**said, "intent": response.intent}:
        yield f"{what} got {said}, and the table has {stored}"


if __name__ == "__main__":
    from examples.agent_platform.database import engine

    found = audit(engine)
    print(*found or ["each intent has one row"], sep="\n")
    sys.exit(bool(found))
