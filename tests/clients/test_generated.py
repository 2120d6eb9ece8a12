"""A client that is generated from the OpenAPI document: it sends keys, and reads what comes back."""

import asyncio
import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from openapi_python_client import generate
from openapi_python_client.config import Config, ConfigFile, MetaType

from retrysafe import profiles
from tests.fastapi.shop import KEY, Shop, SignedIn

Generated = Callable[[Shop], ModuleType]
PACKAGE = "generated_shop"
LONG = "RETRYSAFE_LONG" in os.environ
SAMPLE = ("stripe", "agents")
"""An envelope, and another header."""


@pytest.fixture
def generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Generated]:
    """Generates a package for an application, and imports it."""

    def make(shop: Shop) -> ModuleType:
        document = tmp_path / "openapi.json"
        document.write_text(json.dumps(shop.app.openapi()), encoding="utf-8")
        # Nothing is formatted afterwards: that would be another program.
        said = ConfigFile(post_hooks=[])
        folder = tmp_path / PACKAGE
        config = Config.from_sources(said, MetaType.NONE, document, "utf-8", False, folder)
        assert list(generate(config=config)) == []
        monkeypatch.syspath_prepend(tmp_path)
        return importlib.import_module(PACKAGE)

    yield make
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def part(name: str) -> Any:
    return importlib.import_module(f"{PACKAGE}.{name}")


def call(shop: Shop, package: ModuleType, amount: object, **arguments: Any) -> Any:
    """`POST /orders` by the generated function, to the application itself."""
    post = part("api.default.create_orders_post")
    order = part("models").Order.from_dict({"amount": amount})
    transport = httpx.ASGITransport(shop.app)
    client = package.Client(base_url="http://shop.test", httpx_args={"transport": transport})

    async def send() -> Any:
        async with client as opened:
            return await post.asyncio_detailed(
                client=opened, body=order, authorization="Bearer alice.1", **arguments
            )

    return asyncio.run(send())


def test_the_key_is_sent(generated: Generated) -> None:
    """The second call is a replay, and shows it; another body gets the problem, as the model of problems."""
    shop = Shop(required=True)
    package = generated(shop)
    first, second = (call(shop, package, 5, idempotency_key=KEY) for _ in range(2))
    assert (first.status_code, first.parsed.to_dict()) == (201, {"number": 1, "amount": 5})
    assert second.parsed == first.parsed
    assert [each.headers.get("idempotent-replayed") for each in (first, second)] == [None, "true"]
    assert shop.runs == [("alice", 5)]
    reused = call(shop, package, 6, idempotency_key=KEY)
    assert (reused.status_code, reused.parsed.code) == (422, "key-reused")
    refused = call(shop, package, "many", idempotency_key=KEY)
    assert (refused.status_code, refused.parsed.detail[0].loc) == (422, ["body", "amount"])


@pytest.mark.parametrize("required", [True, "warn"])
def test_a_required_key_is_a_required_argument(generated: Generated, required: Any) -> None:
    """And one that is not may be left out."""
    shop = Shop(required=required)
    package = generated(shop)
    send = part("api.default.create_orders_post").sync_detailed
    has_default = inspect.signature(send).parameters["idempotency_key"].default is not inspect.Parameter.empty
    assert has_default == (required is not True)
    if has_default:
        assert [call(shop, package, 5).parsed["number"] for _ in range(2)] == [1, 2]
    else:
        with pytest.raises(TypeError, match="idempotency_key"):
            call(shop, package, 5)


@pytest.mark.parametrize("profile", profiles.PROFILES if LONG else SAMPLE)
def test_every_profile(generated: Generated, profile: str) -> None:
    """Whatever its header and its envelope are called: generated without a warning, sent and replayed."""
    shop = Shop(guard={"profile": profile})

    def conflict(user: SignedIn) -> str:
        return user.id

    described: Any = {"model": dict[str, int], "description": "The application's own."}
    shop.app.post("/conflict", responses={409: described, 400: described})(conflict)
    package = generated(shop)
    name = shop.guard.wire.key_header.lower().replace("-", "_")
    first, second = (call(shop, package, 5, **{name: KEY}) for _ in range(2))
    assert second.parsed == first.parsed
    assert second.headers[shop.guard.wire.replayed_header] == "true"
    assert len(shop.runs) == 1
    reused = call(shop, package, 6, **{name: KEY})
    assert reused.status_code == shop.guard.wire.status("key-reused")
    assert reused.parsed is not None
