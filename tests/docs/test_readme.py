"""The README's code is run as it stands, and its promises are asked of the application that comes out."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

README = Path(__file__).parents[2] / "README.md"


def code_blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.M | re.S)


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the README's blocks define, run in their order in an empty folder."""
    monkeypatch.chdir(tmp_path)
    charged: list[tuple[int, str]] = []
    network = SimpleNamespace(
        charge=lambda amount, idempotency_key: charged.append((amount, idempotency_key))
    )
    names: dict[str, Any] = {
        "JSONResponse": JSONResponse,
        "Request": Request,
        "Route": Route,
        "Starlette": Starlette,
        "card_network": network,
        "charged": charged,
    }
    for block in code_blocks():
        exec(compile(block, str(README), "exec"), names)
    yield names
    names["app"].guard.close()


def test_the_card_is_charged_once(told: dict[str, Any]) -> None:
    """Twice the same key: one charge, and the second answer is the first one again."""

    async def ask() -> list[httpx.Response]:
        headers = {"Idempotency-Key": "order-1", "X-Tenant": "acme"}
        transport = httpx.ASGITransport(told["app"])
        async with httpx.AsyncClient(transport=transport, base_url="http://shop.test") as client:
            return [
                await client.post("/payments", json={"amount": 5}, headers=headers),
                await client.post("/payments", json={"amount": 5}, headers=headers),
                await client.post("/payments", json={"amount": 6}, headers=headers),
                await client.get("/idempotency"),
            ]

    first, again, other, promise = asyncio.run(ask())
    assert (first.status_code, first.json()) == (201, {"paid": 5})
    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first.headers
    assert (other.status_code, other.json()["code"]) == (422, "key-reused")
    assert promise.status_code == 200
    assert [amount for amount, _ in told["charged"]] == [5]


def test_every_link_leads_somewhere() -> None:
    """No page that the README points to is missing."""
    links = re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8"))
    assert links
    assert [
        link for link in links if not link.startswith("http") and not (README.parent / link).exists()
    ] == []
