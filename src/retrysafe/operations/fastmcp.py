"""Tools of FastMCP: a call that an agent repeats happens once.

    from retrysafe.operations.fastmcp import idempotent

    charges = idempotent(guard, key="idempotency_key", required=True)
    server = FastMCP("billing", instructions=charges.instructions())

    @server.tool(annotations=charges.hints())
    @charges
    def charge(order_id: str, amount: int) -> Receipt: ...

The decorator stands next to the function, below that of the server: so a key is claimed after FastMCP has
authenticated the client, validated the arguments and resolved dependencies.
"""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, Unpack

from fastmcp.exceptions import AuthorizationError, ToolError
from fastmcp.server.dependencies import (
    fastmcp_request_ctx,
    get_access_token,
    without_injected_parameters,
)
from fastmcp.tools import FunctionTool
from fastmcp.utilities.types import NotSet, NotSetT
from mcp_types import CallToolResult

from retrysafe.guard import Guard
from retrysafe.operations.tool_calls.functions import as_called, check_function, key_parameter, show
from retrysafe.operations.tool_calls.policy import META_KEY, IdempotentTools, ToolOptions, lifespan
from retrysafe.operations.tool_calls.tool import META_OUTCOME, Library, Served, ToolCall

__all__ = ["META_KEY", "META_OUTCOME", "Idempotent", "ToolCall", "idempotent", "lifespan"]

F = TypeVar("F", bound=Callable[..., Any])


def _is_anticipated(error: Exception) -> bool:
    return isinstance(error, ToolError)


def _describe_error(_name: str, message: str) -> str:
    return message


# An authorisation that failed is as a 403 is: nothing was done.
_LIBRARY = Library(_is_anticipated, (AuthorizationError,), _describe_error)


class Idempotent(IdempotentTools):
    """The decorator of tools, and what a server publishes about them."""

    def __init__(
        self, guard: Guard, options: ToolOptions, output_schema: dict[str, Any] | NotSetT | None
    ) -> None:
        super().__init__(guard, _LIBRARY, options)
        self._output_schema = output_schema

    def __call__(self, function: F) -> F:
        """Have a tool run once per key."""
        is_async = check_function(function)
        called, key = as_called(function), self.terms.argument
        described = FunctionTool.from_function(_copied(called), output_schema=self._output_schema)
        arguments = signature(without_injected_parameters(described.fn)).parameters
        injected = [name for name in signature(called).parameters if name not in arguments]

        def convert(value: object) -> CallToolResult:
            made = described.convert_result(value)
            return CallToolResult(
                content=made.content,
                structured_content=made.structured_content,
                is_error=made.is_error,
                _meta=made.meta,
            )

        tool = self.tool(called, injected, convert, has_schema=described.output_schema is not None)

        @wraps(function)
        async def run_async(*args: object, **named: Any) -> object:
            given = named.pop(key, None) if key else None
            return await tool.run_async(lambda: function(*args, **named), named, given, _served())

        @wraps(function)
        def run(*args: object, **named: Any) -> object:
            given = named.pop(key, None) if key else None
            return tool.run(lambda: function(*args, **named), named, given, _served())

        wrapper = run_async if is_async else run
        if key is None:
            return show(wrapper, function)
        required = self.terms.required is True
        return show(wrapper, function, key_parameter(key, self.key_schema(), function, required=required))


def idempotent(
    guard: Guard, *, output_schema: dict[str, Any] | NotSetT | None = NotSet, **options: Unpack[ToolOptions]
) -> Idempotent:
    """How tools take keys: the decorator of one of them, or of several.

    As `retrysafe.operations.mcp.idempotent`; `output_schema` is to be what the server's decorator is given.
    """
    return Idempotent(guard, options, output_schema)


def _copied(function: Callable[..., Any]) -> Callable[..., Any]:
    """FastMCP changes the signature of a function whose parameters it fills in: that of this one, then."""

    @wraps(function)
    def copied(*args: object, **named: object) -> object:
        return function(*args, **named)

    return copied


def _served() -> Served | None:
    """The call that is being served, if there is one."""
    found = fastmcp_request_ctx.get()
    return None if found is None else Served("", found.meta or {}, get_access_token(), found)
