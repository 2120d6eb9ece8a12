"""Deliveries to real servers, and workers as processes: at the same moment, and killed in the middle.

Here, too, Django's default database is that of the processes.
"""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from retrysafe.callbacks import receipts
from retrysafe.django import guard
from tests.django import project
from tests.django.jobs.running import Processes
from tests.django.shop.models import Finding, Run

pytest.importorskip("gunicorn")


@pytest.fixture(params=["sqlite", "postgresql"])
def processes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Processes]:
    """On a database with two runs."""
    if request.param == "sqlite":
        address = str(tmp_path / "jobs.db")
        said: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": address}
    else:
        address = request.getfixturevalue("database")
        said = project.postgresql(address)
    with project.database("default", said):
        for id in ("run-1", "run-2"):
            Run.objects.create(id=id)
        with Processes(tmp_path, address) as found:
            yield found


def payload(id: str = "c-1", run: str = "run-1") -> dict[str, str]:
    return {"run_id": run, "callback_id": id, "status": "success", "result_uri": "gs://out/1.json"}


def state(id: str = "run-1") -> tuple[str, int, int]:
    """The run's status, the number of findings in its summary, and how many there are."""
    run = Run.objects.get(id=id)
    return run.status, run.findings, Finding.objects.filter(run=run).count()


def handled(processes: Processes, id: str = "c-1") -> int:
    return sum(note.split()[0] == id for note in processes.notes("handled"))


@pytest.mark.parametrize("url", ["/exact/", "/repeatable/"])
def test_twenty_at_once(processes: Processes, url: str) -> None:
    """One event, delivered twenty times at the same moment to threads of two processes: handled once."""
    processes.serve()
    with ThreadPoolExecutor(20) as pool:
        replies = list(pool.map(lambda _: processes.post(url, payload()), range(20)))
    first = [reply for reply in replies if reply.status == 200 and not reply.is_duplicate]
    assert len(first) == 1, Counter(reply.status for reply in replies)
    assert {reply.status for reply in replies} <= {200, 503}
    assert handled(processes) == 1
    assert processes.post(url, payload()).is_duplicate
    assert state() == ("success", 2, 2)


def test_many_events_of_one_run(processes: Processes) -> None:
    """Twenty events, each delivered by five senders that come again until they are acknowledged."""
    processes.serve()
    ids = [f"c-{number}" for number in range(20)]
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda id: processes.deliver("/exact/", payload(id)), ids * 5))
    assert Counter(note.split()[0] for note in processes.notes("handled")).keys() == set(ids)
    assert Finding.objects.count() == 40
    found = receipts(guard("job-callbacks"), source="exact")
    assert {receipt.id for receipt in found.list("run-1")} == set(ids)


@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.full), "after"])
@pytest.mark.parametrize("url", ["/exact/", "/repeatable/"])
def test_killed_in_the_middle(processes: Processes, url: str, when: str) -> None:
    """SIGKILL before or after the effects: nothing is acknowledged, and a later delivery is handled."""
    processes.serve()
    place = f"{when} c-1"
    processes.gates.close(place)
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(processes.post, url, payload())
        pid = processes.wait_until_held(place)
        assert processes.post(url, payload()).status == 503
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(OSError, match=r"."):
            lost.result()
    assert state() == ("running", 0, 0)
    assert not processes.deliver(url, payload()).is_duplicate
    assert processes.post(url, payload()).is_duplicate
    assert state() == ("success", 2, 2)
    assert handled(processes) == 2


WORK = """
from retrysafe.callbacks.worker import Worker
from tests.django.jobs.urls import inbox

Worker(inbox, concurrency={concurrency}, poll=0.1).run(until_idle={until_idle})
"""


@pytest.mark.parametrize("concurrency", [pytest.param(1, marks=pytest.mark.full), 4])
def test_a_worker(processes: Processes, concurrency: int) -> None:
    """What a service has accepted, another process handles: each event once, in its transaction."""
    processes.serve()
    for number in range(12):
        id = f"c-{number}"
        assert processes.post("/inbox/", payload(id)).status == 202
    assert state() == ("running", 0, 0)
    if concurrency == 1:
        worker = processes.shell(WORK.format(concurrency=1, until_idle=True))
    else:
        worker = processes.start(
            "-m", "django", "retrysafe", "work", "tests.django.jobs.urls:inbox", "--once"
        )
    assert worker.wait(60) == 0, processes.log
    assert state() == ("success", 24, 24)
    assert [handled(processes, f"c-{number}") for number in range(12)] == [1] * 12
    assert processes.post("/inbox/", payload("c-0")).is_duplicate


@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.full), "after"])
def test_a_worker_is_killed(processes: Processes, when: str) -> None:
    """Another one takes over, and what the first had written is gone."""
    processes.serve(workers=1)
    assert processes.post("/inbox/", payload()).status == 202
    processes.gates.close(f"{when} c-1")
    processes.shell(WORK.format(concurrency=2, until_idle=False))
    os.kill(processes.wait_until_held(f"{when} c-1"), signal.SIGKILL)
    assert state() == ("running", 0, 0)
    processes.shell(WORK.format(concurrency=2, until_idle=False))
    processes.wait_until(lambda: state()[0] == "success")
    assert state() == ("success", 2, 2)
    assert processes.post("/inbox/", payload()).is_duplicate


@pytest.mark.parametrize("processes", ["postgresql"], indirect=True)
def test_a_connection_of_a_worker_that_breaks(processes: Processes) -> None:
    """One that is kept, and that the server has closed, is opened anew before the next event."""
    code = """
from django.db import connection
from retrysafe.callbacks.worker import Worker
from tests.django.jobs import urls

settings = connection.settings_dict
settings["CONN_MAX_AGE"], settings["CONN_HEALTH_CHECKS"] = None, True
connection.close()

def process(event):
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        urls.note("backends", str(cursor.fetchone()[0]))
    urls.GATES.pass_through(f"after {event.callback_id}")

urls.process = process
Worker(urls.inbox, concurrency=1, poll=0.1).run()
"""
    import psycopg

    processes.serve(workers=1)
    processes.shell(code)
    for id in ("c-1", "c-2"):
        assert processes.post("/inbox/", payload(id)).status == 202
        processes.deliver_until_handled("/inbox/", payload(id))
        if id == "c-1":
            [backend] = processes.notes("backends")
            with psycopg.connect(processes.database, autocommit=True) as db:
                db.execute("SELECT pg_terminate_backend(%s)", [int(backend)])
    first, second = processes.notes("backends")
    assert first != second
    found = receipts(guard("job-callbacks"), source="inbox").list("run-1")
    assert [receipt.attempt for receipt in found] == [found[0].attempt] * 2, "neither was tried in vain"
