"""Bodies that are copied before it is known which route claims, and read by others than the endpoint."""

import asyncio
from typing import Any

import pytest
from fastapi import Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.middleware.base import BaseHTTPMiddleware

from retrysafe._http import body
from retrysafe.errors import StoreUnavailable
from tests.fastapi.shop import KEY, Shop, SignedIn, send
from tests.fastapi.test_cut_off import Raw

PATIENCE = 10.0


class Letter(BaseModel):
    text: str


@pytest.mark.parametrize("pieces", [1, 7])
def test_a_route_that_takes_more_than_its_guard(pieces: int) -> None:
    """Every byte is compared: what the guard allows elsewhere does not cut the copy short."""
    shop = Shop(guard={"max_request": 1000})

    def write(letter: Letter, user: SignedIn) -> str:
        shop.runs.append(letter.text[-1])
        return letter.text[-1]

    shop.post("/letters", write, max_request=100_000)

    async def scenario() -> None:
        for last, status in (("a", 200), ("a", 200), ("b", 422)):
            sent = b'{"text": "' + b"x" * 5000 + last.encode() + b'"}'
            size = len(sent) // pieces + 1
            request = Raw(shop, "/letters", *(sent[at : at + size] for at in range(0, len(sent), size)))
            assert await request.serve() == status, request.body

    asyncio.run(scenario())
    assert shop.runs == ["a"]


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """503 where a key is claimed, which cannot be compared; a route without one never notices."""

    def full() -> None:
        raise StoreUnavailable("a large body cannot be kept on disk: no space left on device")

    monkeypatch.setattr(body, "_File", full)
    shop = Shop()

    def write(letter: Letter, user: SignedIn) -> int:
        shop.runs.append(1)
        return len(letter.text)

    shop.post("/letters", write)
    shop.app.post("/notes")(write)
    sent = b'{"text": "' + b"x" * (body.IN_MEMORY + 1) + b'"}'
    half = len(sent) // 2

    async def scenario() -> None:
        claimed, free = (Raw(shop, path, sent[:half], sent[half:]) for path in ("/letters", "/notes"))
        assert (await claimed.serve(), b"store-unavailable" in claimed.body) == (503, True)
        assert await free.serve() == 200

    asyncio.run(scenario())
    assert (shop.runs, shop.records()) == ([1], 0)


@pytest.mark.parametrize("sent", [b"", b"hello", b"x" * 2_000_000], ids=["empty", "small", "on disk"])
def test_a_middleware_that_reads_the_body_at_last(sent: bytes) -> None:
    """For its log, say, and after a replay too: the claim has read it, and it is there all the same."""

    async def scenario() -> None:
        shop = Shop()
        seen: list[bytes] = []

        async def note(request: Request, call_next: Any) -> Response:
            response: Response = await call_next(request)
            seen.append(await request.body())
            return response

        def endpoint(user: SignedIn) -> str:
            shop.runs.append(1)
            return "ok"

        shop.app.add_middleware(BaseHTTPMiddleware, dispatch=note)
        shop.post("/noted", endpoint)
        for _ in range(2):
            pieces = [sent[at : at + 65536] for at in range(0, len(sent), 65536)]
            assert await asyncio.wait_for(Raw(shop, "/noted", *pieces).serve(), PATIENCE) == 200
        reused = Raw(shop, "/noted", b"other")
        assert await asyncio.wait_for(reused.serve(), PATIENCE) == 422
        assert (shop.runs, seen) == ([1], [sent, sent, b"other"])

    asyncio.run(scenario())


def test_an_error_handler_that_reads_the_body() -> None:
    """The claim failed before it had read anything."""
    shop = Shop()
    seen: list[bytes] = []

    def broken(_: object) -> None:
        raise LookupError("whose key?")

    async def respond(request: Request, error: Exception) -> Response:
        seen.append(await request.body())
        return JSONResponse({"sorry": str(error)}, 500)

    def endpoint() -> None:
        shop.runs.append(1)

    shop.app.add_exception_handler(LookupError, respond)
    shop.post("/broken", endpoint, scope=broken)
    with shop.client as client:
        assert send(client, "/broken", content=b"hello", key=KEY).json() == {"sorry": "whose key?"}
    assert (shop.runs, seen) == ([], [b"hello"])
