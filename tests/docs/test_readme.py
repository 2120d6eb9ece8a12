"""The README's code is run as it stands, and its promises are asked of the application that comes out."""

import asyncio
from pathlib import Path

import httpx

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
