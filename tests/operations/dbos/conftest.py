"""A DBOS of this process, and control of its workflows."""

import logging
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from dbos import DBOS, DBOSConfig, SetWorkflowID
from sqlalchemy import create_engine, text

from retrysafe import Guard, scopes
from retrysafe.operations.dbos import WorkflowControl
from tests.operations.dbos import workflows
from tests.operations.dbos.callers import SECRET, Callers

PATIENCE = 30.0
"""Seconds until what a test waits for is given up."""


class Running:
    """The DBOS that runs, and where its database is."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.file = url.removeprefix("sqlite:///")

    def finished(self, pages: int = 3) -> str:
        """The id of a workflow that has ended."""
        handle = DBOS.start_workflow(workflows.report, pages)
        handle.get_result()
        return handle.workflow_id

    def begun(self, pages: int = 3) -> str:
        """The id of one that waits in its first step."""
        workflow_id = f"report-{uuid4()}"  # DBOS of other modules in this process had theirs
        with SetWorkflowID(workflow_id):
            DBOS.start_workflow(workflows.report, pages)
        wait_until(lambda: workflows.RUNS[workflow_id, 1] == 1)
        return workflow_id

    def status(self, workflow_id: str) -> str:
        found = DBOS.get_workflow_status(workflow_id)
        assert found is not None
        return found.status

    def forks(self, workflow_id: str) -> list[str]:
        return [one.workflow_id for one in DBOS.list_workflows(forked_from=workflow_id)]

    def execute(self, *statements: str) -> None:
        """In its database, beside it."""
        engine = create_engine(self.url)
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))
        engine.dispose()


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, "what the test waits for does not happen"
        time.sleep(0.01)


@contextmanager
def launched(url: str) -> Generator[Running]:
    """A DBOS of this process: it is launched in a quarter of a second, and ends in one."""
    config: DBOSConfig = {"name": "reports", "system_database_url": url, "log_level": "CRITICAL"}
    DBOS(config=config)
    logging.getLogger("dbos").setLevel(logging.CRITICAL)
    DBOS.launch()
    try:
        yield Running(url)
    finally:
        DBOS.destroy()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One for the tests of a module."""
    with launched(f"sqlite:///{tmp_path_factory.mktemp('dbos')}/dbos.sqlite") as found:
        yield found


Controls = Callable[..., WorkflowControl]


@pytest.fixture
def control_with(running: Running, tmp_path: Path) -> Iterator[Controls]:
    """Makes a control; those of a test share their records."""
    guards: list[Guard] = []

    def make(workflows: Any = DBOS, *, options: dict[str, Any] | None = None, **said: Any) -> WorkflowControl:
        about: dict[str, Any] = {
            "scope": scopes.service("reports"),
            "profile": "workflow-control",
            "secret": SECRET,
            **said,
        }
        guards.append(Guard(f"sqlite:///{tmp_path}/keys.db", **about))
        extra: dict[str, Any] = options or {}
        return WorkflowControl(guards[-1], workflows, **extra)

    yield make
    for guard in guards:
        guard.close()


@pytest.fixture
def control(control_with: Controls) -> WorkflowControl:
    return control_with()


@pytest.fixture(scope="module")
def callers() -> Iterator[Callers]:
    """Where processes are started from that control workflows, and are killed."""
    with Callers() as found:
        yield found
