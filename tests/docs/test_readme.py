"""The README's code is run as it stands, and its promises are asked of the application that comes out."""

import asyncio
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.docs import serving
from tests.docs.pages import page
from tests.docs.running import told


def test_the_card_is_charged_once(tmp_path: Path) -> None:
    """Twice the same key: one charge, and the second answer is the first one again."""
    with told("README.md", tmp_path) as readme:
        first, again, other, promise = asyncio.run(ask(readme.names["app"]))
    assert (first.status_code, first.json()) == (201, {"paid": 5})
    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first.headers
    assert (other.status_code, other.json()["code"]) == (422, "key-reused")
    assert promise.status_code == 200
    assert [amount for amount, _ in readme.names["charged"]] == [5]


async def ask(app: object) -> list[httpx.Response]:
    headers = {"Idempotency-Key": "order-1", "X-Tenant": "acme"}
    transport = httpx.ASGITransport(app)  # type: ignore[arg-type]  # what the page calls `app`
    async with httpx.AsyncClient(transport=transport, base_url="http://shop.test") as client:
        return [
            await client.post("/payments", json={"amount": 5}, headers=headers),
            await client.post("/payments", json={"amount": 5}, headers=headers),
            await client.post("/payments", json={"amount": 6}, headers=headers),
            await client.get("/idempotency"),
        ]


def test_the_event_is_handled_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same delivery twice: it is handled once, and acknowledged twice."""
    pytest.importorskip("fastapi")
    event = {"run_id": "run-7", "callback_id": "4f1c", "status": "success", "result_uri": "file:///out"}

    async def deliver(service: object) -> list[httpx.Response]:
        transport = httpx.ASGITransport(service)  # type: ignore[arg-type]  # what the page calls `service`
        async with httpx.AsyncClient(transport=transport, base_url="http://jobs.test") as sender:
            return [await sender.post("/callbacks", json=event) for _ in range(2)]

    with told("README.md", tmp_path) as readme:
        first, again = asyncio.run(deliver(readme.names["service"]))
    assert capsys.readouterr().out.count("run-7 has finished: file:///out") == 1
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.json()["message"] == "Callback already processed"


def test_the_order_and_its_answer_are_one(tmp_path: Path) -> None:
    """The first example, saved and served as it stands: one order, and the second answer is the first one."""
    pytest.importorskip("fastapi")
    [block] = [block for block in page("README.md").blocks if "app = FastAPI()" in block.text]
    (tmp_path / "shop.py").write_text(block.text, encoding="utf-8")
    headers = {"Idempotency-Key": "order-1", "X-Tenant": "acme"}
    with serving.serve(tmp_path, [sys.executable, "-m", "uvicorn", "shop:app", "--port", "0"]) as address:
        first, again = (
            httpx.post(f"{address}/orders?item=apple", headers=headers, timeout=serving.PATIENCE)
            for _ in range(2)
        )
    assert (first.status_code, first.json()) == (201, {"ordered": "apple"})
    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["Idempotent-Replayed"] == "true"
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        assert database.execute("SELECT item FROM orders").fetchall() == [("apple",)]
        records = database.execute("SELECT state, mode FROM retrysafe_records").fetchall()
    assert records == [("completed", "tx")], (
        "what was written and what was answered were not committed together"
    )
