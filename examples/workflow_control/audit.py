"""What took effect, by DBOS's own tables: how often workflows were started, cancelled, resumed and forked."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from dbos import DBOSClient

from examples.workflow_control.workflows import APPROVAL

_JOURNAL = """
CREATE TABLE IF NOT EXISTS changes (workflow TEXT, was TEXT, became TEXT);
CREATE TRIGGER IF NOT EXISTS journal AFTER UPDATE OF status ON workflow_status WHEN OLD.status <> NEW.status
BEGIN INSERT INTO changes VALUES (NEW.workflow_uuid, OLD.status, NEW.status); END
"""


def keep_journal(database: str) -> None:
    """From now on, note every change of a workflow's status: DBOS stores only the last one."""
    with closing(sqlite3.connect(database.removeprefix("sqlite:///"), timeout=30)) as connection:
        connection.executescript(_JOURNAL)


class Effects(NamedTuple):
    """How often each kind of action took effect."""

    started: int
    cancelled: int
    resumed: int
    forked: int
    delivered: int


def approve_all(database: str, patience: float = 60.0) -> None:
    """Let all workflows that wait for a person go on, and wait until they have ended."""
    client = DBOSClient(system_database_url=database)
    try:
        active = {"ENQUEUED", "PENDING"}
        for one in client.list_workflows(load_input=False, load_output=False):
            if one.status in active:
                client.send(one.workflow_id, "yes", topic=APPROVAL)
        until = time.monotonic() + patience
        while time.monotonic() < until and client.list_workflows(
            status=sorted(active), load_input=False, load_output=False
        ):
            time.sleep(0.1)
    finally:
        client.destroy()


def count(database: str, deliveries: Path) -> Effects:
    with closing(sqlite3.connect(database.removeprefix("sqlite:///"), timeout=30)) as connection:

        def number(where: str) -> int:
            return int(connection.execute(f"SELECT count(*) FROM {where}").fetchone()[0])

        started = number("workflow_status WHERE forked_from IS NULL")
        forked = number("workflow_status WHERE forked_from IS NOT NULL")
        cancelled = number("changes WHERE became = 'CANCELLED'")
        resumed = number("changes WHERE was = 'CANCELLED'")
    delivered = 0
    if deliveries.exists():
        with closing(sqlite3.connect(deliveries)) as connection:
            delivered = int(connection.execute("SELECT count(*) FROM deliveries").fetchone()[0])
    return Effects(started, cancelled, resumed, forked, delivered)
