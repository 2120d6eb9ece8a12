"""How tools take keys, and what a server publishes about it: what `idempotent(guard, …)` makes.

Everything that can be checked is checked when it is made.
"""

import re
from asyncio import to_thread
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from inspect import iscoroutinefunction, signature
from typing import Any, Final, cast

from mcp_types import CallToolResult, ToolAnnotations

from retrysafe import scopes
from retrysafe._core.model import Request, Scope
from retrysafe.errors import ConfigurationError
from retrysafe.guard import Guard
from retrysafe.operations.arguments import Parameters, Target, name_of
from retrysafe.operations.decorate import check_guard, compile_options, is_async
from retrysafe.operations.tool_calls.functions import as_compared
from retrysafe.operations.tool_calls.tool import (
    META_OUTCOME,
    Library,
    Rule,
    Tool,
    ToolCall,
    as_it_is,
    stored_by,
)
from retrysafe.operations.tool_calls.words import KEY, Terms, instruct
from retrysafe.policy import OperationOptions, Required
from retrysafe.scopes import ScopeAnswer, ScopeRule

META_KEY: Final = "io.retrysafe/idempotencyKey"
"""Where a client puts the key of a call, in its `_meta`: a name with a prefix in reverse DNS notation, and
with none that is reserved (MCP 2026-07-28, `MetaObject`)."""

_FindOwner = Callable[[ToolCall], ScopeAnswer | Awaitable[ScopeAnswer]]

ToolScope = ScopeAnswer | _FindOwner | ScopeRule
"""An owner, a function of the call that finds it, or a rule of `scopes` that holds for calls."""


class ToolOptions(OperationOptions, total=False):
    """What `idempotent` may be told, whatever the library; the rest is as for any operation."""

    key: str | None
    """An argument for the key, which models fill in and the function does not get.  Without it, keys come in
    the `_meta` of a call, and the schema of the tool stays as it is."""
    meta_key: str
    """The name of a key in `_meta`."""
    required: Required | None
    """As on routes; by default as the guard says."""
    action: str | None
    """What operators know the tool by; by default the name of its function."""
    target: Target | None
    """The parameter that says what a call is about, or a part of one."""
    scope: ToolScope
    """Whose keys they are; by default as the guard says."""
    ignore: Sequence[str]
    """Arguments that are not compared."""


_OWN = ToolOptions.__annotations__.keys() - OperationOptions.__annotations__.keys()


class IdempotentTools:
    """How some tools take keys.  One is enough for all tools that take them in the same way."""

    def __init__(self, guard: Guard, library: Library, said: ToolOptions) -> None:
        check_guard(guard)
        options = {name: value for name, value in said.items() if name not in _OWN}
        options["retry_on"] = (*said.get("retry_on", ()), *library.nothing_done)
        rules = compile_options(guard, options, "@idempotent")
        find_owner, owned = _owner_rule(said.get("scope"), guard)
        key, meta_key = _argument(said.get("key")), _meta_name(said.get("meta_key", META_KEY))
        required = _required(said.get("required"), rules.request.required)
        self.terms = Terms(rules, key, meta_key, required, owned)
        self.rule = Rule(guard, self.terms, library, stored_by(library), find_owner)
        self.ignore = tuple(said.get("ignore", ()))
        self._scope = said.get("scope", guard.rules.request.scope)
        self._action = said.get("action")
        self._target = said.get("target")

    # --- what a server publishes

    def hints(self, **others: Any) -> ToolAnnotations:
        """The annotations of a tool, for the decorator of the server; `others` are those besides.

        `idempotent_hint` speaks of calls with the same arguments: it is true only where the key is one of
        them and cannot be left out, and where no call runs without the store.
        """
        if "idempotent_hint" in others or "idempotentHint" in others:
            raise ConfigurationError(
                "hints(idempotent_hint=...): it follows from how the tool takes its key. Leave it out"
            )
        always = self.terms.rules.policy.store_down != "run"
        return ToolAnnotations(idempotent_hint=self._key_is_required() and always, **others)

    @property
    def meta(self) -> dict[str, Any]:
        """The `_meta` of a tool: how a key is passed, for clients that do it by themselves."""
        terms = self.terms
        said: dict[str, Any] = {
            "metaKey": terms.meta_key,
            "required": terms.required is True,
            "retentionSeconds": terms.rules.policy.retention,
        }
        return {META_OUTCOME: said if terms.argument is None else {**said, "argument": terms.argument}}

    def instructions(self) -> str:
        """What an agent has to know about retries, for the `instructions` of the server: Markdown."""
        return instruct(self.terms)

    def key_schema(self) -> dict[str, Any]:
        """Of the argument for the key."""
        longest = self.terms.rules.wire.longest_key
        return {"type": "string", "minLength": 1, "maxLength": longest, "description": KEY}

    def input_schema(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """A tool's input schema with the argument for the key, where schemas are written by hand."""
        argument = self.terms.argument
        if argument is None:
            return dict(schema)
        properties: dict[str, Any] = {**schema.get("properties", {}), argument: self.key_schema()}
        required = [*schema.get("required", ()), *([argument] if self._key_is_required() else [])]
        return {"type": "object", **schema, "properties": properties, "required": required}

    def _key_is_required(self) -> bool:
        return self.terms.argument is not None and self.terms.required is True

    # --- tools

    def tool(
        self,
        function: Callable[..., Any],
        injected: Sequence[str],
        convert: Callable[[object], CallToolResult],
        *,
        has_schema: bool,
    ) -> Tool:
        """The tool of a function; `injected` are parameters that the library fills in, and no arguments."""
        names = signature(function).parameters
        scopes.check_arguments(cast("ScopeRule", self._scope), names, name_of(function))
        if not is_async(function) and iscoroutinefunction(self.rule.find_owner):
            raise ConfigurationError(
                f"{name_of(function)} is a plain function, and its scope function is asynchronous: make both "
                "plain or both asynchronous"
            )
        # What a call is about is said to operators: a call that says nothing is not refused for that.
        parameters = Parameters(
            as_compared(function), self._target, (*self.ignore, *injected), needs_target=False
        )
        action = self._action or function.__name__
        return Tool(self.rule, action, parameters, convert, has_schema=has_schema)

    def tool_by_name(self, name: str) -> Tool:
        """A tool without a function of its own: what it is called with is one mapping, `arguments`.

        Whether its results have a schema is not known here, so they are taken to have one.
        """

        def compared(arguments: Mapping[str, object]) -> None: ...

        target = f"arguments.{self._target}" if isinstance(self._target, str) else self._target
        parameters = Parameters(compared, target, (), needs_target=False)
        return Tool(self.rule, self._action or name, parameters, as_it_is, has_schema=True)


def _argument(name: object) -> str | None:
    if name is None or (isinstance(name, str) and name.isidentifier() and not name.startswith("_")):
        return name
    raise ConfigurationError(
        f'@idempotent(key={name!r}): expected the name of an argument, such as "idempotency_key", or None '
        "for keys that come in the _meta of a call"
    )


_LABEL = "[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_META_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*/[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
"""Names in `_meta` (MCP 2026-07-28, `MetaObject`): labels separated by dots, a slash, a name."""

_RESERVED = frozenset({"modelcontextprotocol", "mcp"})
"""As the second label of a prefix."""


def _meta_name(name: object) -> str:
    if not isinstance(name, str) or not _META_NAME.fullmatch(name):
        raise ConfigurationError(
            f"@idempotent(meta_key={name!r}): expected a name with a prefix in reverse DNS notation, such as "
            '"com.example/idempotencyKey"'
        )
    if _RESERVED & set(name.partition("/")[0].split(".")[1:2]):
        raise ConfigurationError(
            f"@idempotent(meta_key={name!r}): its prefix is reserved for MCP. Use one of your own, such as "
            '"com.example/idempotencyKey"'
        )
    return name


def _required(said: Required | None, by_guard: Required) -> Required:
    if said is None:
        return by_guard
    if said in (True, False, "warn"):
        return said
    raise ConfigurationError(f'@idempotent(required={said!r}): expected True, False or "warn"')


def _owner_rule(scope: ToolScope, guard: Guard) -> tuple[_FindOwner, bool]:
    """How the owner of a key is found, and whether it always is.

    As the decorator says, else as the guard says.  The user of a request is the authenticated client of a
    call.  Of other rules for requests, none holds for calls, and none is guessed instead.
    """
    rule = guard.rules.request.scope if scope is None else scope
    if rule is scopes.user:
        return _client, False
    if isinstance(rule, scopes.ReadyMade) and (owner := _owner_of_all(rule)) is not None:
        return lambda _: owner, True
    if (find := scopes.by_argument(rule)) is not None:
        return lambda call: find(call.arguments), False
    if isinstance(rule, scopes.ReadyMade) or (scope is None and callable(rule)):
        raise ConfigurationError(
            f"@idempotent: {scopes.describe(cast('ScopeRule', rule))} says whose key it is, and a tool call "
            "has no such thing. Pass scope=scopes.user for the authenticated client, scopes.argument(...), a "
            'function of the call, or scopes.service("billing") where there is one client, as over stdio'
        )
    if callable(rule):
        return cast("_FindOwner", rule), False
    owner = scopes.resolve(rule)
    if owner is None:
        raise ConfigurationError(f"@idempotent(scope={scope!r}) names no owner: expected an id")
    return lambda _: owner, True


def _owner_of_all(rule: scopes.ReadyMade) -> Scope | None:
    """The owner of all keys, where a rule has one whatever it is asked about: a service, or the public."""
    if rule.shared() == "always":
        return rule.find(Request("POST", "/", b"", ()))
    return scopes.of_service(rule)


def _client(call: ToolCall) -> ScopeAnswer:
    """Who has authenticated: the client, and for whom it acts.  A renewed token is the same owner."""
    token = call.token
    if token is None:
        return None
    claims = token.claims or {}
    # A verifier that passes on the claims need not have read them.
    subject = claims.get("sub") if token.subject is None else token.subject
    parts = {"client": token.client_id, "issuer": claims.get("iss"), "subject": subject}
    return {name: str(part) for name, part in parts.items() if part is not None}


def lifespan(guard: Guard) -> Callable[[object], AbstractAsyncContextManager[dict[str, Any]]]:
    """The `lifespan` of a server: its guard checks the store when it starts, and drains when it stops.

    So what a tool is doing when its client hangs up comes to its end, and is stored.
    """
    check_guard(guard)

    @asynccontextmanager
    async def live(_server: object) -> AsyncGenerator[dict[str, Any]]:
        life = object()
        guard.lives.add(life)
        await guard.check_async()
        try:
            yield {}
        finally:
            guard.lives.discard(life)
            if not guard.lives:  # the others still serve their clients
                await guard.drain_async()
                guard.resume()  # it may be started again, as test suites do
                if not guard.runtime.unfinished():
                    await to_thread(guard.close)

    return live
