"""The same with workflows and keys in PostgreSQL: whose errors are others, and whose locks are rows."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from retrysafe import Guard, scopes
from retrysafe.operations import KeyReused
from retrysafe.operations.dbos import WorkflowControl, WorkflowMissing
from retrysafe.testing.postgres import PostgresServer
from tests.operations.dbos.callers import SECRET, Callers, there_is_one_fork
from tests.operations.dbos.conftest import Running, launched

pytestmark = pytest.mark.full

KILLS = 60


@pytest.fixture(scope="module")
def on_postgresql(postgres: PostgresServer) -> Iterator[Running]:
    url = postgres.new_database()
    with launched(url.replace("postgresql:", "postgresql+psycopg:")) as found:
        yield found
    postgres.drop_database(url)


def test_control(on_postgresql: Running, database: str) -> None:
    """A fork whose record was lost is found by its id, and what is missing is said to be."""
    said = {"scope": scopes.service("reports"), "profile": "workflow-control", "secret": SECRET}
    workflow = on_postgresql.finished()
    forked: set[str | None] = set()
    for store in ("memory:", "memory:", database):  # each without the records of the one before
        with closing(Guard(store, **said)) as guard:  # type: ignore[arg-type]  # as above
            control = WorkflowControl(guard)
            forked.add(control.fork_workflow(workflow, 2, key="k").new_workflow_id)
            assert control.fork_workflow(workflow, 2, key="k").replayed
            with pytest.raises(KeyReused):
                control.fork_workflow(workflow, 3, key="k")
            with pytest.raises(WorkflowMissing):
                control.cancel_workflow("nothing", key="c")
    assert on_postgresql.forks(workflow) == list(forked)


def test_fifty_forks_with_kills(
    callers: Callers, on_postgresql: Running, database: str, tmp_path: Path
) -> None:
    """One fork, as on SQLite."""
    said = {
        "dbos": on_postgresql.url,
        "keys": database,
        "outcomes": str(tmp_path / "outcomes"),
        "key": "k",
        "lease": 1.0,
        "workflow": on_postgresql.finished(),
    }
    there_is_one_fork(callers, on_postgresql.forks, said, KILLS)
