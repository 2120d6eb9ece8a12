"""A server of tools with a guard, written for each library; `python -m tests.mcp.billing mcp FOLDER` is one
over stdio.

Everything it does is in the folder: the records, and a ledger with a line for each effect.  A tool that holds
goes on when the test has made a file.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcp_types as types
from typing_extensions import TypedDict

from retrysafe import Guard, NotDone, scopes
from retrysafe.scopes import ScopeRule

LIBRARIES = ("mcp", "fastmcp", "lowlevel")

LEASE = 1.0
"""Seconds for which a killed server blocks its keys: what a test has to wait."""

BLOCKS: list[types.ContentBlock] = [
    types.TextContent(type="text", text="Zwei Bilder: \u2603\u0000\n"),
    types.ImageContent(type="image", data="iVBORw0KGgo=", mime_type="image/png"),
    types.AudioContent(type="audio", data="UklGRg==", mime_type="audio/wav"),
    types.ResourceLink(type="resource_link", name="invoice", uri="https://example.com/1.pdf", size=12),
    types.EmbeddedResource(
        type="resource",
        resource=types.BlobResourceContents(uri="file:///1.bin", blob="AP8=", mime_type="application/x"),
        annotations=types.Annotations(audience=["user"], priority=0.5),
    ),
]


class Receipt(TypedDict):
    order: str
    amount: int
    number: int


class Billing:
    """What the tools do."""

    def __init__(self, folder: Path, refused: type[Exception]) -> None:
        self._folder = folder
        self._refused = refused

    def write(self, line: str) -> int:
        """An effect; how many there are now."""
        with (self._folder / "ledger").open("a") as ledger:
            ledger.write(f"{line}\n")
        return len((self._folder / "ledger").read_text().splitlines())

    def charge(self, order: str, amount: int) -> Receipt:
        return {"order": order, "amount": amount, "number": self.write(f"charge {order} {amount}")}

    def refund(self, order: str) -> str:
        self.write(f"refund {order}")
        match order:
            case "declined":
                raise self._refused("the card was declined")
            case "crash":
                raise RuntimeError("a secret of the server")
            case "busy":
                raise NotDone("The bank is closed.", retry_after=5)
            case _:
                return f"refunded {order}"

    async def hold(self, name: str, progress: Callable[[float], Any]) -> str:
        self.write(f"hold {name}")
        await progress(0.5)
        while not (self._folder / f"{name}.go").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)
        await progress(1.0)
        self.write(f"held {name}")
        return f"held {name}"


def build(library: str, folder: Path, scope: ScopeRule) -> Any:
    """A server of this library, whose records are in the folder."""
    guard = Guard(f"sqlite:///{folder}/keys.db", scope=scope, lease=LEASE)
    return {"mcp": _mcp, "fastmcp": _fastmcp, "lowlevel": _lowlevel}[library](guard, folder)


def _mcp(guard: Guard, folder: Path) -> Any:
    from mcp.server.auth.provider import AccessToken
    from mcp.server.auth.settings import AuthSettings
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    from retrysafe.operations.mcp import idempotent, lifespan

    class Verifier:
        async def verify_token(self, token: str) -> AccessToken | None:
            client, _, _ = token.partition("-")
            return AccessToken(token=token, client_id=client, scopes=[], subject="7")

    clients = guard.rules.request.scope is scopes.user
    settings = {"issuer_url": "http://127.0.0.1:1", "resource_server_url": None}
    charges = idempotent(guard, key="idempotency_key", required=True, target="order")
    server: MCPServer[Any] = MCPServer(
        "billing",
        instructions=charges.instructions(),
        log_level="CRITICAL",
        lifespan=lifespan(guard),
        auth=AuthSettings.model_validate(settings) if clients else None,
        token_verifier=Verifier() if clients else None,
    )
    _add_tools(server, Billing(folder, ToolError), charges, lambda **how: idempotent(guard, **how), Context)
    return server


def _fastmcp(guard: Guard, folder: Path) -> Any:
    from fastmcp import Context, FastMCP
    from fastmcp.exceptions import ToolError
    from fastmcp.server.auth import StaticTokenVerifier

    from retrysafe.operations.fastmcp import idempotent, lifespan

    tokens = {
        token: {"client_id": token.partition("-")[0], "scopes": [], "sub": "7"}
        for token in ("alice-1", "alice-2", "bob-1")
    }
    charges = idempotent(guard, key="idempotency_key", required=True, target="order")
    server: FastMCP[Any] = FastMCP(
        "billing",
        instructions=charges.instructions(),
        lifespan=lifespan(guard),
        auth=StaticTokenVerifier(tokens) if guard.rules.request.scope is scopes.user else None,
    )
    _add_tools(server, Billing(folder, ToolError), charges, lambda **how: idempotent(guard, **how), Context)
    return server


def _add_tools(
    server: Any, billing: Billing, charges: Any, idempotent: Callable[..., Any], context: Any
) -> None:
    """The same tools, with the decorators of either library; both look for their context by its type."""

    async def charge(order: str, amount: int = 1) -> Receipt:
        """Charge an order."""
        return billing.charge(order, amount)

    def refund(order: str) -> str:
        """Refund an order."""
        return billing.refund(order)

    async def hold(name: str, ctx: Any) -> str:
        """Wait for a file."""
        return await billing.hold(name, ctx.report_progress)

    def pictures() -> list[types.ContentBlock]:
        """Blocks of every kind."""
        billing.write("pictures")
        return BLOCKS

    def export(size: int) -> str:
        """More than is stored."""
        billing.write("export")
        return "x" * size

    hold.__annotations__["ctx"] = context
    server.tool(annotations=charges.hints(destructive_hint=True), meta=charges.meta)(charges(charge))
    for function in (refund, hold, pictures):
        server.tool()(idempotent()(function))
    server.tool(name="repeat")(idempotent(effects="repeatable", action="repeat")(hold))
    server.tool()(idempotent(max_response=1000)(export))


def _lowlevel(guard: Guard, folder: Path) -> Any:
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server

    from retrysafe.operations.mcp import idempotent, idempotent_calls, lifespan

    class Refused(Exception):
        """What this handler has for the model."""

    billing = Billing(folder, Refused)
    charges = idempotent(guard, key="idempotency_key", required=True, target="order")
    others = idempotent(guard)
    repeatable = idempotent(guard, effects="repeatable")
    order = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}

    async def list_tools(_context: object, _params: object) -> types.ListToolsResult:
        schema = charges.input_schema(order)
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name="charge", input_schema=schema, annotations=charges.hints(), _meta=charges.meta
                ),
                *(
                    types.Tool(name=name, input_schema=order)
                    for name in ("refund", "hold", "repeat", "pictures")
                ),
            ]
        )

    @idempotent_calls(
        {"charge": charges, "refund": others, "hold": others, "repeat": repeatable, "pictures": others}
    )
    async def call_tool(
        context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        given = params.arguments or {}
        match params.name:
            case "charge":
                receipt = billing.charge(given["order"], given.get("amount", 1))
                text = types.TextContent(type="text", text=str(receipt["number"]))
                return types.CallToolResult(content=[text], structured_content=dict(receipt))
            case "pictures":
                billing.write("pictures")
                return types.CallToolResult(content=BLOCKS)
            case "refund":
                try:
                    said = billing.refund(given["order"])
                except Refused as refusal:
                    text = types.TextContent(type="text", text=str(refusal))
                    return types.CallToolResult(content=[text], is_error=True)
            case _:
                said = await billing.hold(given["name"], context.session.report_progress)
        return types.CallToolResult(content=[types.TextContent(type="text", text=said)])

    return Server(
        "billing",
        instructions=charges.instructions(),
        lifespan=lifespan(guard),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def main(library: str, folder: Path) -> None:
    (folder / "pid").write_text(str(os.getpid()))
    server = build(library, folder, scopes.service("billing"))
    if library == "lowlevel":
        asyncio.run(_serve(server))
    elif library == "fastmcp":
        server.run(show_banner=False)
    else:
        server.run()


async def _serve(server: Any) -> None:
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
