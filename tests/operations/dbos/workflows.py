"""Workflows that tests control: they count their steps, and wait where a test holds them."""

import threading
from collections import Counter

from dbos import DBOS

RUNS: Counter[tuple[str, int]] = Counter()
"""How often a step of a workflow has begun."""

_open = threading.Event()
_open.set()


class Held:
    """Has the steps of workflows wait, as long as the `with` lasts."""

    def __enter__(self) -> None:
        _open.clear()

    def __exit__(self, *_: object) -> None:
        _open.set()


@DBOS.step()
def step(number: int) -> int:
    assert DBOS.workflow_id is not None
    RUNS[DBOS.workflow_id, number] += 1
    _open.wait()
    return number


@DBOS.workflow()
def report(pages: int, title: str = "untitled") -> str:
    for number in range(1, pages + 1):
        step(number)
    return f"{title}: {pages} pages"


@DBOS.workflow()
async def report_async(pages: int) -> str:
    return f"{pages} pages"


@DBOS.workflow()
def impatient(wait: float) -> float:
    return wait


@DBOS.workflow()
def open_to_all(**given: object) -> str:
    return f"{sorted(given)}"


@DBOS.workflow()
def parent(pages: int) -> str:
    return DBOS.start_workflow(report, pages).get_result()
