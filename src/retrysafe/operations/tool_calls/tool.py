"""One tool that takes keys: from the key of a call to the result that its client gets.

What is known about the effect decides what is stored, as for requests:

    the tool                                                        kept as
    was never reached: arguments refused, no key                    nothing
    returned a result, `isError` or not                             completed: replayed as it is
    raised the library's `ToolError`, its own word to the model     completed, as a 4xx is
    raised anything else                                            failed: the retry is refused
    raised `NotDone`, or asked the client for input                 nothing: released

With effects="database", whatever is raised rolls back, and is released.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from json import dumps, loads
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from warnings import catch_warnings

from mcp_types import Annotations, CallToolResult, ContentBlock, InputRequiredResult, TextContent

from retrysafe._core import attempt as attempts
from retrysafe._core import steps, tokens
from retrysafe._core.problems import Problem
from retrysafe.errors import ConfigurationError, NotDone, UnreadableRecord
from retrysafe.events import log
from retrysafe.guard import Guard
from retrysafe.operations.arguments import Parameters
from retrysafe.operations.call import AsyncCall, Owner, Stored, SyncCall
from retrysafe.operations.done import Done
from retrysafe.operations.tool_calls import words
from retrysafe.operations.tool_calls.words import Terms
from retrysafe.operations.values import NotEncodable
from retrysafe.policy import Rules
from retrysafe.refusals import Refused, refusal
from retrysafe.scopes import ScopeAnswer

META_OUTCOME: Final = "io.retrysafe/idempotency"
"""Where a result says in its `_meta` what became of the key, and a tool that it takes one."""


class Token(Protocol):
    """Of an authenticated client: what the server's verifier of tokens has found out."""

    @property
    def client_id(self) -> str: ...
    @property
    def subject(self) -> str | None: ...
    @property
    def claims(self) -> Mapping[str, Any] | None: ...


class ToolCall(NamedTuple):
    """One call of a tool, as a scope function sees it."""

    action: str
    arguments: Mapping[str, object]
    """What the tool is called with, without the key."""
    meta: Mapping[str, object]
    """The `_meta` of the call.  The client wrote it: it proves nothing."""
    token: Token | None
    """Of the authenticated client, over HTTP; `None` where the server authenticates none, as over stdio."""
    context: object
    """The library's own context of the call."""


class Served(NamedTuple):
    """What a library knows of the call that it serves."""

    name: str
    """Of the tool, as the client knows it."""
    meta: Mapping[str, object]
    token: Token | None
    context: object
    arguments: Mapping[str, object] | None = None
    """Without the key, where they are not those of the tool's function."""


class Library(NamedTuple):
    """What the tools of one library are like."""

    is_anticipated: Callable[[Exception], bool]
    """Whether an exception is the tool's own word to the model, and so its result; any other is a crash."""
    nothing_done: tuple[type[Exception], ...]
    """Exceptions of the library which mean that nothing was done."""
    describe_error: Callable[[str, str], str]
    """How the library words such an exception to the model: of the tool's name, and the exception's text."""


class _Asked(NotDone):
    """A tool wants more from the client before it begins: the same call comes again, with the same key."""

    def __init__(self, result: InputRequiredResult) -> None:
        super().__init__("the tool has asked the client for input")
        self.result = result


class _StoredError(Exception):
    """What the first call raised, in the tool's own words."""


class _Results:
    """A result as the protocol writes it: content blocks, structured content, `isError` and `_meta`."""

    def encode(self, value: object) -> bytes:
        assert isinstance(value, CallToolResult), "it was converted"
        try:
            return value.model_dump_json(by_alias=True, exclude_none=True).encode()
        except ValueError as error:  # pydantic's, for what it cannot write
            raise NotEncodable(str(error)) from None

    def decode(self, data: bytes) -> object:
        """The result, or what the tool had returned, where an operator has said so."""
        try:
            return CallToolResult.model_validate_json(data)
        except ValueError:
            pass
        try:
            return loads(data)
        except (ValueError, RecursionError) as error:
            raise UnreadableRecord(f"it is not JSON: {type(error).__name__}") from None


class _Errors:
    """What a tool has said to the model by raising it."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def encode(self, error: Exception) -> bytes | None:
        return dumps({"message": str(error)}).encode() if self._library.is_anticipated(error) else None

    def decode(self, data: bytes) -> Exception:
        try:
            return _StoredError(str(loads(data)["message"]))
        except (ValueError, LookupError, TypeError) as error:
            raise UnreadableRecord(f"it is not what a tool has raised: {error}") from None


def stored_by(library: Library) -> Stored:
    return Stored(_Results(), _Errors(library))


_within: ContextVar[object] = ContextVar("retrysafe_tool", default=None)
"""The context of the call whose tool runs here with a key.  The key is that tool's, and not also the key of
the tools that it calls in turn: they are a part of it.  A call that it makes as a client, of a server in the
same process, has another context, and a key of its own."""


class Rule(NamedTuple):
    """What the tools of one policy have in common."""

    guard: Guard
    terms: Terms
    library: Library
    stored: Stored
    find_owner: Callable[[ToolCall], ScopeAnswer | Awaitable[ScopeAnswer]]


class _Keyed(NamedTuple):
    key: object
    served: Served


_Call = TypeVar("_Call", SyncCall[CallToolResult], AsyncCall[CallToolResult])


def unchanged(value: object) -> object:
    return value


class Tool:
    """One tool.  `convert` makes a result of what its function returns; `has_schema` says whether results
    have a schema that they must fit."""

    def __init__(
        self,
        rule: Rule,
        action: str,
        parameters: Parameters,
        convert: Callable[[object], CallToolResult],
        *,
        has_schema: bool,
    ) -> None:
        self._rule = rule
        self._action = action
        self._parameters = parameters
        self._convert = convert
        self._has_schema = has_schema

    def run(
        self,
        function: Callable[[], object],
        arguments: Mapping[str, object],
        given: object,
        served: Served | None,
        plain: Callable[[object], object] = unchanged,
    ) -> object:
        """Run a plain function once per key.  `given` is the argument for the key.  What is returned is for
        the library, which takes a result as it is; `plain` is applied to that of a call without a key."""
        try:
            keyed = self._keyed(given, served)
        except Refused as refused:
            return self._refused(refused)
        if keyed is None:
            return plain(function())

        def run() -> CallToolResult:
            left = _within.set(keyed.served.context)
            try:
                return self._settled(function())
            finally:
                _within.reset(left)

        try:
            return self._done(self._call(SyncCall[CallToolResult], run, arguments, keyed).run_once())
        except (Refused, NotDone, _StoredError) as ended:
            return self._ended(ended, keyed.served)

    async def run_async(
        self,
        function: Callable[[], Awaitable[object]],
        arguments: Mapping[str, object],
        given: object,
        served: Served | None,
        plain: Callable[[object], object] = unchanged,
    ) -> object:
        """The same for a coroutine function."""
        try:
            keyed = self._keyed(given, served)
        except Refused as refused:
            return self._refused(refused)
        if keyed is None:
            return plain(await function())

        async def run() -> CallToolResult:
            left = _within.set(keyed.served.context)
            try:
                return self._settled(await function())
            finally:
                _within.reset(left)

        try:
            return self._done(await self._call(AsyncCall[CallToolResult], run, arguments, keyed).run_once())
        except (Refused, NotDone, _StoredError) as ended:
            return self._ended(ended, keyed.served)

    # --- the key

    def _keyed(self, given: object, served: Served | None) -> _Keyed | None:
        """The key of this call, which may be none; `None` where it runs without one."""
        terms = self._rule.terms
        if served is None:
            if given is None:
                return None  # called by another function, such as a test, and not by a client
            raise ConfigurationError(
                f"{self._action}({terms.argument}=...) was called outside of a tool call, where no client "
                "has keys. Call it without one, or make it an @operation and call its once()"
            )
        inside = _within.get() is served.context
        sent = None if inside else served.meta.get(terms.meta_key)
        key = sent if given is None else given
        if sent is not None and _trimmed(sent) != _trimmed(key):
            problem = Problem("key-invalid", words.ANOTHER_KEY.format(argument=terms.argument))
            raise refusal(problem, terms.rules, self._action)
        if key is None and (inside or terms.required is not True):
            if not inside:
                self._rule.guard.runtime.keyless(
                    self._action, "", self._action, warn=terms.required == "warn", door="operation"
                )
            return None
        return _Keyed(key, served)

    def _call(
        self,
        kind: Callable[[Guard, Rules, Stored, steps.Operation, object, Owner, Callable[[], Any]], _Call],
        run: Callable[[], object],
        arguments: Mapping[str, object],
        keyed: _Keyed,
    ) -> _Call:
        rule, served = self._rule, keyed.served
        bound = self._parameters.bind((), arguments)
        whole = bound if served.arguments is None else {"arguments": served.arguments}
        target = self._parameters.target((), whole, whole)
        running = attempts.running()
        operation = steps.Operation(
            self._action,
            target,
            self._parameters.fingerprint(self._action, target, bound),
            tokens.draw().hex(),
            (running.claim.correlation_id or running.request_id) if running else None,
        )
        asked = bound if served.arguments is None else served.arguments
        seen = ToolCall(self._action, asked, served.meta, served.token, served.context)
        return kind(
            rule.guard,
            rule.terms.rules,
            rule.stored,
            operation,
            keyed.key,
            lambda: rule.find_owner(seen),
            run,
        )

    # --- the result

    def _settled(self, value: object) -> CallToolResult:
        if isinstance(value, InputRequiredResult):
            raise _Asked(value)
        return self._convert(value)

    def _done(self, done: Done[CallToolResult]) -> CallToolResult:
        outcome: dict[str, Any] = {"replayed": done.replayed, "attempt": done.attempt, "stored": done.stored}
        if done.omitted:
            # A result without structured content does not fit a schema, unless it is an error.
            empty = CallToolResult(content=[], is_error=self._has_schema)
            return _marked(empty, {**outcome, "omitted": True}, words.OMITTED)
        texts = [words.REPLAYED] if done.replayed else [] if done.stored else [words.UNSTORED]
        return _marked(self._result(done.value), outcome, *texts)

    def _result(self, value: object) -> CallToolResult:
        if isinstance(value, CallToolResult):
            return value
        try:
            # FastMCP warns of JSON where it expects an object of the annotated class, and takes it.
            with catch_warnings(action="ignore"):
                return self._convert(value)
        except Exception as error:  # noqa: BLE001 - the library's own, about what an operator has written
            why = type(error).__name__
            log.error("%s: a value that was stored by hand is none of its results: %s", self._action, why)
            # The model reads it, and a result without structured content does not fit a schema.
            return CallToolResult(
                content=[_text(dumps(value, ensure_ascii=False))], is_error=self._has_schema
            )

    def _ended(self, ended: Refused | NotDone | _StoredError, served: Served) -> object:
        match ended:
            case _Asked():
                return ended.result
            case _StoredError():
                text = self._rule.library.describe_error(served.name, str(ended))
                result = CallToolResult(content=[_text(text)], is_error=True)
                return _marked(result, {"replayed": True}, words.REPLAYED)
            case NotDone():
                problem = Problem("not-done", ended.detail or "", ended.retry_after)
                return self._refused(refusal(problem, self._rule.terms.rules, self._action))
            case Refused():
                return self._refused(ended)

    def _refused(self, refused: Refused) -> CallToolResult:
        outcome: dict[str, Any] = {"code": refused.code, "retry": refused.retry}
        if refused.retry_after is not None:
            outcome["retryAfter"] = refused.retry_after
        if refused.failure is not None and refused.failure.at is not None:
            outcome["failedAt"] = refused.failure.at  # and no more: what went wrong stays on the server
        result = CallToolResult(content=[_text(words.explain(refused, self._rule.terms))], is_error=True)
        return _marked(result, outcome)


def _trimmed(key: object) -> object:
    """White space around a key is not part of it."""
    return key.strip() if isinstance(key, str) else key


def as_it_is(value: object) -> CallToolResult:
    """For handlers that make results themselves."""
    if isinstance(value, CallToolResult):
        return value
    raise TypeError(f"the handler returned {type(value).__name__}: expected a CallToolResult")


def _marked(result: CallToolResult, outcome: Mapping[str, Any], *texts: str) -> CallToolResult:
    """A result that says what became of the key: to programs in its `_meta`, to the model below its content.

    Structured content stays as it is, because it has to fit the schema of the tool.
    """
    content: list[ContentBlock] = [*result.content, *(_text(text, for_model=True) for text in texts)]
    meta = {**(result.meta or {}), META_OUTCOME: dict(outcome)}
    return result.model_copy(update={"content": content, "meta": meta})


def _text(text: str, *, for_model: bool = False) -> TextContent:
    audience = Annotations(audience=["assistant"]) if for_model else None
    return TextContent(type="text", text=text, annotations=audience)
