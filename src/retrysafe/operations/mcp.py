"""Tools of the official SDK, `mcp`: a call that an agent repeats happens once.

    from retrysafe.operations.mcp import idempotent

    charges = idempotent(guard, key="idempotency_key", required=True)
    server = MCPServer("billing", instructions=charges.instructions())

    @server.tool(annotations=charges.hints())
    @charges
    def charge(order_id: str, amount: int) -> Receipt: ...

The decorator stands next to the function, below that of the server: so a key is claimed after the SDK has
authenticated the client and validated the arguments.  For the low-level `Server`, whose one handler serves
all tools, there is `idempotent_calls`.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from inspect import Parameter
from typing import Annotated, Any, TypeVar, Unpack, cast

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Context
from mcp.server.mcpserver import tools as sdk
from mcp.server.mcpserver.exceptions import (
    ResourceError,
    ToolError,
    UnexpectedResourceError,
    UnexpectedToolError,
)
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult
from pydantic import BaseModel, GetCoreSchemaHandler, PydanticUserError, SkipValidation, TypeAdapter
from pydantic_core import CoreSchema

from retrysafe.errors import ConfigurationError
from retrysafe.guard import Guard
from retrysafe.operations.tool_calls.functions import (
    as_called,
    check_function,
    key_parameter,
    returning,
    show,
)
from retrysafe.operations.tool_calls.policy import META_KEY, IdempotentTools, ToolOptions, lifespan
from retrysafe.operations.tool_calls.tool import META_OUTCOME, Library, Served, Token, ToolCall, unchanged

__all__ = [
    "META_KEY",
    "META_OUTCOME",
    "Idempotent",
    "ToolCall",
    "idempotent",
    "idempotent_calls",
    "lifespan",
]

F = TypeVar("F", bound=Callable[..., Any])

Handler = Callable[
    [ServerRequestContext[Any, Any], CallToolRequestParams], Awaitable[CallToolResult | InputRequiredResult]
]
"""What a low-level `Server` is given as `on_call_tool`."""

_CONTEXT = "retrysafe_context"
"""The parameter in which the SDK passes its context.  No one else does: so its calls are known."""


def _is_anticipated(error: Exception) -> bool:
    crashed = isinstance(error, UnexpectedToolError | UnexpectedResourceError)
    return isinstance(error, ToolError | ResourceError) and not crashed


def _describe_error(name: str, message: str) -> str:
    return f"Error executing tool {name}: {message}"


# An elicitation by URL: the same call is to be made again, once the user has been there.
_LIBRARY = Library(_is_anticipated, (UrlElicitationRequiredError,), _describe_error)


class Idempotent(IdempotentTools):
    """The decorator of tools, and what a server publishes about them."""

    def __init__(self, guard: Guard, options: ToolOptions, structured_output: bool | None) -> None:
        super().__init__(guard, _LIBRARY, options)
        self._structured_output = structured_output

    def __call__(self, function: F) -> F:
        """Have a tool run once per key."""
        is_async = check_function(function)
        called = as_called(function)
        described = sdk.Tool.from_function(called, structured_output=self._structured_output)
        context, key = described.context_kwarg, self.terms.argument
        injected = [*([context] if context else []), *described.resolved_params]
        convert = cast("Callable[[object], CallToolResult]", described.fn_metadata.convert_result)
        published = _published(described.fn_metadata.output_model)
        tool = self.tool(called, injected, convert, has_schema=described.output_schema is not None)

        def take(named: dict[str, Any]) -> tuple[object, Served | None, Callable[[object], object]]:
            """The key, the call that is served, and what is made of a result where there is no key.

            The function gets a context if it asks for one.  Other code that calls it passes that by its own
            name, and so gets what the function returns.
            """
            given = named.pop(key, None) if key else None
            if _CONTEXT not in named:
                return given, None, unchanged
            found = named.pop(_CONTEXT)
            if context is not None:
                named[context] = found
            return given, _served(found), unchanged if published is None else convert

        @wraps(function)
        async def run_async(*args: object, **named: Any) -> object:
            given, served, plain = take(named)
            return await tool.run_async(lambda: function(*args, **named), named, given, served, plain)

        @wraps(function)
        def run(*args: object, **named: Any) -> object:
            given, served, plain = take(named)
            return tool.run(lambda: function(*args, **named), named, given, served, plain)

        more = [Parameter(_CONTEXT, Parameter.KEYWORD_ONLY, default=None, annotation=Context)]
        if key is not None:
            required = self.terms.required is True
            more.insert(0, key_parameter(key, self.key_schema(), function, required=required))
        wrapper = show(run_async if is_async else run, function, *more, instead_of=context)
        return wrapper if published is None else returning(wrapper, Annotated[CallToolResult, published])


def idempotent(
    guard: Guard, *, structured_output: bool | None = None, **options: Unpack[ToolOptions]
) -> Idempotent:
    """How tools take keys: the decorator of one of them, or of several.

    A key comes in the `_meta` of a call, as `meta_key`.  With `key`, the tool has an argument of this name as
    well, which models fill in and the function does not get.  `required` is as on routes, and by default as
    the guard says.  `action` names the tool to operators, by default as the function.  `target` is the
    parameter that says what a call is about.  `scope` says whose keys they are: an id, a function of the
    `ToolCall`, or `scopes.user`, which is the authenticated client.  `ignore` names arguments that are not
    compared.  Other options are those of operations.  `structured_output` is to be what the decorator of the
    server is given.
    """
    return Idempotent(guard, options, structured_output)


def idempotent_calls(tools: Mapping[str, Idempotent]) -> Callable[[Handler], Handler]:
    """Have the handler of a low-level `Server` run once per key, for the tools that are named.

    The handler gets the arguments without the key.  Input schemas are written by hand there: `input_schema`
    of what `idempotent` returns adds the argument for the key to one.
    """
    for name, found in tools.items():
        if not isinstance(found, Idempotent):
            raise ConfigurationError(
                f"idempotent_calls({{{name!r}: {found!r}}}): expected what idempotent(guard, ...) returns"
            )
    by_name = {name: (found, found.tool_by_name(name)) for name, found in tools.items()}

    def decorate(handler: Handler) -> Handler:
        @wraps(handler)
        async def handle(
            context: ServerRequestContext[Any, Any], params: CallToolRequestParams
        ) -> CallToolResult | InputRequiredResult:
            if params.name not in by_name:
                return await handler(context, params)
            policy, tool = by_name[params.name]
            arguments: dict[str, Any] = dict(params.arguments or {})
            given = arguments.pop(policy.terms.argument, None) if policy.terms.argument else None
            rest = params.model_copy(update={"arguments": arguments})
            compared = {name: value for name, value in arguments.items() if name not in policy.ignore}
            meta = cast("Mapping[str, object]", context.meta or {})
            served = Served(params.name, meta, _token(context.request), context, arguments)
            result = await tool.run_async(
                lambda: handler(context, rest), {"arguments": compared}, given, served
            )
            return cast("CallToolResult | InputRequiredResult", result)

        return handle

    return decorate


def _published(output_model: object) -> type[BaseModel] | None:
    """What the SDK is told that results are: their schema is published, and they are not validated again.

    A result was validated when it was made of what the function returned.  Its structured content is JSON:
    of it, a model that is strict or has serializers of its own cannot be made again.
    """
    if output_model is None:
        return None
    found = cast("type[Any]", Annotated[output_model, SkipValidation])
    try:
        TypeAdapter(found)
    except PydanticUserError:
        return None  # the SDK rebuilds what pydantic does not take: `typing.TypedDict` before Python 3.12

    class Published(BaseModel):
        @classmethod
        def __get_pydantic_core_schema__(cls, _source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
            return handler.generate_schema(found)

    return Published


def _served(context: Context[Any, Any] | None) -> Served | None:
    """The call of a context; the SDK makes some without, for tools that other code calls."""
    if context is None:
        return None
    try:
        found = context.request_context
    except ValueError:
        return None
    name = str((found.params or {}).get("name"))
    return Served(name, cast("Mapping[str, object]", found.meta or {}), _token(found.request), found)


def _token(request: object) -> Token | None:
    """Of the request that carried the call: a session may outlive the token that it was opened with."""
    scope: Mapping[str, object] = getattr(request, "scope", {})
    user = scope.get("user")
    return user.access_token if isinstance(user, AuthenticatedUser) else get_access_token()
