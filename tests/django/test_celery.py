"""Tasks of Celery's: sent after the commit of a guarded view, and operations on the project's database.

With a broker, a server and workers as processes.
"""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("celery")

import redis
from celery import Celery  # pyright: ignore[reportMissingTypeStubs]  # it has none

from retrysafe.django import guard
from retrysafe.stores.admin import Query
from retrysafe.testing.valkey import ValkeyServer
from tests.django import project
from tests.django.jobs.running import Processes, Reply
from tests.django.shop.models import Order


class Shop(Processes):
    def __init__(self, folder: Path, database: str, broker: str) -> None:
        super().__init__(folder, database, broker)
        self._celery = Celery(broker=broker)
        self._queue = redis.Redis.from_url(broker)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._celery.close()
        self._queue.close()

    def waiting(self) -> int:
        """Messages at the broker, where no worker runs yet."""
        return int(self._queue.llen("celery"))

    def order(self, label: str, **query: str) -> Reply:
        said = "&".join(f"{name}={value}" for name, value in {"label": label, **query}.items())
        return self.post(f"/orders/?{said}", {}, {"Idempotency-Key": f"key-of-{label}"})

    def send(self, task: str, *arguments: str, id: str) -> None:
        self._celery.send_task(f"tests.django.jobs.tasks.{task}", arguments, task_id=id)

    def ended(self, order: str, how: str) -> int:
        return self.notes("ended").count(f"{order} {how}")


@pytest.fixture(params=["sqlite", "postgresql"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, valkey: ValkeyServer) -> Iterator[Shop]:
    if request.param == "sqlite":
        address = str(tmp_path / "jobs.db")
        said: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": address}
    else:
        address = request.getfixturevalue("database")
        said = project.postgresql(address)
    with project.database("default", said), Shop(tmp_path, address, valkey.new_database()) as found:
        yield found


def orders() -> list[str]:
    return sorted(Order.objects.values_list("label", flat=True))


def records() -> int:
    admin = guard().store.open_admin()
    try:
        return len(list(admin.list(Query(door="operation"), 100)))
    finally:
        admin.close()


@pytest.mark.parametrize("by", ["django", "current"])
def test_sent_after_the_commit(shop: Shop, by: str) -> None:
    """Once, when the order can be found, and not before; not for what was undone, and not for a replay."""
    shop.serve()
    assert shop.order("one", by=by).status == 201
    assert shop.waiting() == 1
    replay = shop.order("one", by=by)
    assert (replay.status, replay.headers["Idempotent-Replayed"]) == (201, "true")
    for then in ("raise", "mark"):
        assert shop.order(then, by=by, then=then).status == 500
    assert shop.waiting() == 1
    shop.gates.close("before the commit of two")
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(shop.order, "two", by=by)
        shop.wait_until_held("before the commit of two")
        assert shop.waiting() == 1
        shop.gates.open("before the commit of two")
        assert reply.result().status == 201
    assert shop.waiting() == 2
    shop.celery()
    shop.wait_until(lambda: len(shop.notes("shipped")) == 2)
    assert sorted(shop.notes("shipped")) == ["one 1", "two 1"]
    assert orders() == ["one", "two"]


def test_an_operation_in_a_task(shop: Shop) -> None:
    """Its own transaction: a message that comes twice is done once, and what failed has left nothing."""
    shop.celery()
    for _ in range(2):
        shop.send("reward_order", "o-1", id="task-1")
    shop.wait_until(lambda: shop.ended("o-1", "True") == 1)
    assert (shop.ended("o-1", "False"), orders()) == (1, ["reward for o-1"])

    shop.send("reward_order", "o-2", "fail", id="task-2")
    shop.send("reward_order", "o-3", id="task-3")
    shop.wait_until(lambda: shop.ended("o-3", "False") == 1)
    shop.wait_until(lambda: any(note.startswith("o-2 ") for note in shop.notes("rewarded")))
    assert "reward for o-2" not in orders()


def test_a_task_is_killed(shop: Shop) -> None:
    """A process of the pool, after the effect: what it wrote is gone, and the message is done again."""
    shop.celery()
    shop.gates.close("after o-1")
    shop.send("reward_order", "o-1", id="task-1")
    os.kill(shop.wait_until_held("after o-1"), signal.SIGKILL)
    shop.wait_until(lambda: shop.ended("o-1", "False") == 1)
    assert orders() == ["reward for o-1"]
    assert len(shop.notes("rewarded")) == 2


def test_an_operation_inside_of_a_transaction(shop: Shop) -> None:
    """Of the task's own: its record is committed with it, and undone with it."""
    shop.celery()
    shop.send("close_order", "o-1", "fail", id="task-1")
    shop.wait_until(lambda: shop.ended("o-1", "undone") == 1)
    shop.send("close_order", "o-1", id="task-1")
    shop.wait_until(lambda: shop.ended("o-1", "False") == 1)
    assert orders() == ["closed o-1", "reward for o-1"]
    assert records() == 1
    shop.send("close_order", "o-1", id="task-1")
    shop.wait_until(lambda: shop.ended("o-1", "True") == 1)
    assert orders() == ["closed o-1", "closed o-1", "reward for o-1"], "what has no key is done each time"
    assert len(shop.notes("rewarded")) == 2
