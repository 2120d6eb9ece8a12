"""Both libraries behind one face, with clients in the same process: for what no transport has a part in."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from mcp_types import CallToolResult

from retrysafe import Guard
from retrysafe.operations import fastmcp as ours_fastmcp
from retrysafe.operations import mcp as ours_mcp
from retrysafe.operations.mcp import META_KEY

F = TypeVar("F", bound=Callable[..., Any])


class Library(NamedTuple):
    name: str
    idempotent: Callable[..., Any]
    server: Callable[..., Any]
    error: type[Exception]
    """What a tool raises that has something to say to the model."""
    context: Any
    connect: Callable[[Any], Any]

    def tool(self, server: Any, guard: Guard, **options: Any) -> Callable[[F], F]:
        """Both decorators, in their order.  A parameter `ctx` gets the context of the library."""

        def decorate(function: F) -> F:
            if "ctx" in function.__annotations__:
                function.__annotations__["ctx"] = self.context
            decorated: F = server.tool()(self.idempotent(guard, **options)(function))
            return decorated

        return decorate

    def call(
        self, server: Any, tool: str, arguments: Mapping[str, object], *keys: object
    ) -> list[CallToolResult]:
        """One call for each key, in their order, on one connection."""

        async def call_all() -> list[CallToolResult]:
            async with self.connect(server) as client:
                call = client.call_tool_mcp if self.name == "fastmcp" else client.call_tool
                return [
                    await call(tool, dict(arguments), meta={} if key is None else {META_KEY: key})
                    for key in keys
                ]

        return asyncio.run(call_all())


def _mcp() -> Library:
    from mcp.client import Client
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    def server(**options: Any) -> Any:
        return MCPServer("test", log_level="CRITICAL", **options)

    return Library("mcp", ours_mcp.idempotent, server, ToolError, Context, Client)


def _fastmcp() -> Library:
    from fastmcp import Client, Context, FastMCP
    from fastmcp.exceptions import ToolError

    def server(**options: Any) -> Any:
        return FastMCP("test", **options)

    return Library("fastmcp", ours_fastmcp.idempotent, server, ToolError, Context, Client)


LIBRARIES = {"mcp": _mcp, "fastmcp": _fastmcp}
