"""Clients of the server in `billing`: real ones, over stdio and over streamable HTTP."""

import sys
import threading
import time
from collections.abc import Generator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
import uvicorn
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from retrysafe import scopes
from retrysafe.operations.mcp import META_KEY, META_OUTCOME
from tests.mcp.billing import build

ROOT = Path(__file__).parents[2]


class Connection:
    """A client with an event loop of its own, for tests that are plain functions."""

    def __init__(self, portal: BlockingPortal, client: Client, folder: Path) -> None:
        self.portal = portal
        self.client = client
        self.folder = folder

    def call(self, tool: str, key: object = None, /, **arguments: object) -> CallToolResult:
        return self.start(tool, key, **arguments).result(30)

    def start(self, tool: str, key: object = None, /, **arguments: object) -> "Future[CallToolResult]":
        """The same without waiting; cancelling it cancels the call."""
        meta: Any = {} if key is None else {META_KEY: key}

        async def call() -> CallToolResult:
            return await self.client.call_tool(tool, arguments, meta=meta)

        return self.portal.start_task_soon(call)

    def ledger(self) -> list[str]:
        found = self.folder / "ledger"
        return found.read_text().splitlines() if found.exists() else []

    def wait_for(self, line: str) -> None:
        """Until an effect is in the ledger."""
        deadline = time.monotonic() + 20
        while line not in self.ledger():
            assert time.monotonic() < deadline, f"{line!r} did not happen: {self.ledger()}"
            time.sleep(0.01)

    def go(self, name: str) -> None:
        """Have a tool that holds go on."""
        (self.folder / f"{name}.go").touch()

    def pid(self) -> int:
        return int((self.folder / "pid").read_text())


def outcome(result: CallToolResult) -> Mapping[str, Any]:
    """What a result says of its key, to programs."""
    found: Mapping[str, Any] = (result.meta or {}).get(META_OUTCOME, {})
    return found


def texts(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, TextContent)]


@contextmanager
def over_stdio(library: str, folder: Path) -> Generator[Connection]:
    """A client that has started its server."""
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "tests.mcp.billing", library, str(folder)], cwd=ROOT
    )
    with start_blocking_portal() as portal:
        client = Client(server)
        with portal.wrap_async_context_manager(client):
            yield Connection(portal, client, folder)


@contextmanager
def served(library: str, folder: Path) -> Generator[str]:
    """The address of a server that authenticates its clients."""
    built = build(library, folder, scopes.user)
    app = built.http_app() if library == "fastmcp" else built.streamable_http_app()
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + 20
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.should_exit = True
        thread.join(20)


@contextmanager
def over_http(
    url: str, token: str, folder: Path, *, mode: Literal["auto", "legacy"] = "auto"
) -> Generator[Connection]:
    """A client with a token; "legacy" speaks as clients did before 2026."""
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())

        async def make() -> httpx2.AsyncClient:
            return httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=30)

        http = portal.call(make)
        stack.callback(portal.call, http.aclose)
        client = Client(streamable_http_client(url, http_client=http), mode=mode)
        stack.enter_context(portal.wrap_async_context_manager(client))
        yield Connection(portal, client, folder)
