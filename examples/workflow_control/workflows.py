"""A workflow that takes days: it collects figures, waits for the approval of a person, and delivers."""

import sqlite3
from contextlib import closing

from dbos import DBOS

from examples.workflow_control.settings import DELIVERIES

APPROVAL = "approval"
WEEK = 7 * 24 * 3600.0


@DBOS.step()
def collect(report: str) -> int:
    """Where it would ask a dozen services; a fork from step 2 does not ask them again."""
    return len(report)


@DBOS.step()
def deliver(report: str) -> None:
    with closing(sqlite3.connect(DELIVERIES, timeout=30)) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS deliveries (workflow TEXT PRIMARY KEY, report TEXT)")
        # DBOS runs a step again that was interrupted; by its workflow, the row is there once.
        database.execute("INSERT OR IGNORE INTO deliveries VALUES (?, ?)", (DBOS.workflow_id, report))


@DBOS.workflow()
def publish(report: str) -> str:
    collect(report)
    if DBOS.recv(APPROVAL, timeout_seconds=WEEK) is None:
        return "not approved in time"
    deliver(report)
    return "delivered"
