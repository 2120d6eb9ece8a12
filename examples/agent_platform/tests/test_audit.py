"""What the audit notices."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, orm

from examples.agent_platform.audit import Response, audit, rows
from examples.agent_platform.models import Action, Agent, Base, Dweller, Story, digest


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """One agent, which has acted once."""
    engine = create_engine(f"sqlite:///{tmp_path}/platform.db")
    Base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        session.add(Agent(id=7, intent="born", name="ada", secret=digest("s")))
        session.add(Dweller(id=8, agent_id=7, turns=1))
        session.add(Action(id=9, intent="acted", dweller_id=8, text="look", turn=1))
        session.commit()
    yield engine
    engine.dispose()


BORN = Response(Agent, "born", 201, {"id": 7, "intent": "born", "dweller": 8, "secret": "s"})
ACTED = Response(Action, "acted", 201, {"id": 9, "intent": "acted", "turn": 1})


def test_nothing(engine: Engine) -> None:
    assert audit(engine, [BORN, ACTED]) == []


def test_an_action_that_was_done_twice(engine: Engine) -> None:
    """By its rows, and by the counter if only that was moved twice."""
    with orm.Session(engine) as session:
        session.add(Action(intent="acted", dweller_id=8, text="look", turn=2))
        session.add(Story(intent="acted", agent_id=7, title="another table, another intent"))
        session.commit()
    assert rows(engine) == {"agents: born": 1, "actions: acted": 2, "stories: acted": 1}
    assert audit(engine) == [
        "actions: acted has 2 rows",
        "dweller 8 had 1 turns, and there are 2 actions",
    ]
    assert rows(engine, "another storm") == {}


@pytest.mark.parametrize(
    ("response", "found"),
    [
        (ACTED._replace(status=500, document={}), "got 500 {}"),
        (ACTED._replace(document={**ACTED.document, "id": 10}), "has the number 10, which does not exist"),
        (
            ACTED._replace(document={**ACTED.document, "turn": 2}),
            "got {'id': 9, 'intent': 'acted', 'turn': 2}",
        ),
        (ACTED._replace(intent="another"), "and the table has"),
        (BORN._replace(document={**BORN.document, "secret": "t"}), "and the table has"),
        (BORN._replace(document={**BORN.document, "dweller": 9}), "and the table has"),
    ],
)
def test_a_response_that_the_tables_do_not_know(engine: Engine, response: Response, found: str) -> None:
    [text] = audit(engine, [response])
    assert found in text
