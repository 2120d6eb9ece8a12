"""One call of an operation: what the flow asks of its door, and what its result means for the caller.

The function's own exceptions reach the caller as they are.  What is stored is a `Response`, as for requests:
a return value is a 200 with JSON, an exception that the operation declares a 422, any other failure a 500.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from inspect import isawaitable
from json import dumps, loads
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from retrysafe import scopes
from retrysafe._core import attempt as attempts
from retrysafe._core import problems, protocol, tokens
from retrysafe._core.attempt import Attempt
from retrysafe._core.model import FAILED, RAISED, VALUE, Claim, Door, Record, Response, Scope
from retrysafe._core.problems import Problem
from retrysafe._core.steps import Flow, Gone, Operation, Outcome, Raised, Responded, Result, Run, TooLarge
from retrysafe._core.times import iso
from retrysafe._runtime.drive_sync import call_sync
from retrysafe._runtime.transactions import CallTransaction
from retrysafe.errors import ConfigurationError, NotJoined, UnreadableRecord
from retrysafe.events import log
from retrysafe.guard import Guard
from retrysafe.operations.done import OMITTED, Done
from retrysafe.operations.values import NotEncodable
from retrysafe.policy import Rules
from retrysafe.refusals import Failure, Refused, refusal
from retrysafe.scopes import ScopeAnswer

T = TypeVar("T")

_JSON = ((b"content-type", b"application/json"),)

_LONGEST_MESSAGE = 2000
"""Characters of a failure's message: for people, who read the beginning of it."""

Owner = Callable[[], "ScopeAnswer | Awaitable[ScopeAnswer]"]


class ValueCodec(Protocol):
    """How what a function returns is written and read."""

    def encode(self, value: object) -> bytes:
        """Raises `NotEncodable`."""
        ...

    def decode(self, data: bytes) -> object:
        """Raises `UnreadableRecord`."""
        ...


class RaisedCodec(Protocol):
    """How an exception is written and read that settles an operation."""

    def encode(self, error: Exception) -> bytes | None:
        """`None` for one that does not."""
        ...

    def decode(self, data: bytes) -> Exception:
        """Raises `UnreadableRecord`."""
        ...


class Stored(NamedTuple):
    """How the outcomes of an operation are written and read."""

    value: ValueCodec
    errors: RaisedCodec


class _Call(Generic[T]):
    """What blocking and asynchronous calls share."""

    door: Door = "operation"
    claim: Claim | None = None
    background = 0.0
    source = ""
    _value: object = None
    _error: Exception | None = None
    """What the function raised."""
    _attempt: Attempt | None = None
    _described: Problem | None = None

    def __init__(
        self,
        guard: Guard,
        rules: Rules,
        stored: Stored,
        operation: Operation,
        key: object,
        owner: Owner,
        function: Callable[[], Any],
    ) -> None:
        self._guard = guard
        self._rules = rules
        self._stored = stored
        self._operation = operation
        self._key = key
        self._owner = owner
        self._function = function
        self._outer = _outer(guard, rules, operation.action)

    def flow(self) -> Flow[Result]:
        runtime = self._guard.runtime
        return protocol.operate(
            self._operation,
            self._key,
            self._rules,
            self._describe,
            tokens.draw(),
            runtime.is_draining,
            runtime.secret,
            self._outer,
        )

    def _describe(self, problem: Problem) -> Response:
        self._described = problem
        return problems.render(problem, self._rules.wire.specification, self._rules.rendering.problems)

    # --- for observers

    @property
    def action(self) -> str:
        return self._operation.action

    @property
    def target(self) -> str:
        return self._operation.target

    @property
    def route(self) -> str:
        return self._operation.action

    def owner(self) -> str:
        return f"the scope of the operation {self.action}"

    def status(self, result: Result) -> None:  # noqa: ARG002 - there is no wire
        return None

    def close(self) -> None:
        """Nothing: it holds nothing."""

    def desert(self) -> None:
        """Nothing: what the function returns is stored, and the caller's retry gets it."""

    # --- what came of the function

    def _returned(self, value: object) -> Outcome:
        self._value = value
        if self._rules.outcome.no_store:
            return Responded(Response(VALUE, _JSON), True, _JSON)  # so it may be of any type
        try:
            body = self._stored.value.encode(value)
        except NotEncodable as error:
            if self._rules.policy.effects == "database":
                return self._raised(error)  # rolled back, as after any other mistake of the function's
            # The effect has happened: that it has must be stored, whatever the function returned.
            log.error("%s: its value is not stored, and a retry will not get it: %s", self.action, error)
            return Responded(Response(VALUE, _JSON), True, _JSON)
        return Responded(Response(VALUE, _JSON, body), False, _JSON)

    def _raised(self, error: Exception) -> Outcome:
        self._error = error
        if self._rules.policy.effects != "database":
            try:
                body = self._stored.errors.encode(error)
            except NotEncodable as reason:
                log.error("%s: what it raised is stored as a failure: %s", self.action, reason)
                body = None
            if body is not None:
                return Responded(Response(RAISED, _JSON, body), False, _JSON)
        body = dumps({"type": type(error).__qualname__, "message": _message(error)}).encode()
        return Raised(error, Response(FAILED, _JSON, body))

    # --- what the caller gets

    def as_value(self, refused: Refused) -> Refused:
        """A refusal of this call; one that the function itself raised is raised again."""
        if refused is self._error:
            raise refused
        return refused

    def result(self, result: Result) -> Done[T]:
        reply = result.reply
        outer, attempt = self._outer, self._attempt
        has_callbacks = attempt is not None and (attempt.callbacks or attempt.parts)
        if outer is not None and attempt is not None and has_callbacks and result.verdict == "completed":
            # What it left to be done after the commit is done after that of the call around it.
            outer.parts = (*outer.parts, attempt)
        if isinstance(reply, Record):
            return self._replayed(reply)
        if isinstance(reply, Problem):
            raise self._refusal(reply) from self._error or result.error or result.trouble
        if self._error is not None:
            raise self._error
        if result.error is not None or self._attempt is None:
            # Not committed, or not even called: there was no connection for its transaction.
            assert self._described is not None, "what was refused was described"
            raise self._refusal(self._described) from result.error
        return Done(
            cast("T", self._value),
            replayed=False,
            attempt=result.attempt,
            stored=result.stored and result.verdict == "completed",
        )

    def _replayed(self, record: Record) -> Done[T]:
        response = record.response
        assert response is not None, "the flow has looked"
        if (
            record.state == "failed"
            or response.status >= FAILED
            or (record.omitted and response.status == RAISED)
        ):
            # A declared exception whose content was not stored cannot be raised again; but it was no success.
            problem = Problem("previously-failed", "The first call with this key failed.")
            raise self._refusal(problem, record)
        if record.omitted:
            return Done(OMITTED, replayed=True, attempt=record.attempt)
        try:
            if response.status == RAISED:
                raise self._stored.errors.decode(response.body)
            value = cast("T", self._stored.value.decode(response.body))
        except UnreadableRecord as damage:
            log.error("record %s: its value cannot be read: %s", record.id.hex()[:8], damage)
            problem = Problem("store-unavailable", "The stored value cannot be read.")
            raise self._refusal(problem) from damage
        return Done(value, replayed=True, attempt=record.attempt)

    def _refusal(self, problem: Problem, record: Record | None = None) -> Refused:
        record = record or problem.first
        failure = None
        if problem.code == "previously-failed" and record is not None:
            failure = _failure(record)
        return refusal(problem, self._rules, self.action, failure)


def _outer(guard: Guard, rules: Rules, action: str) -> Attempt | None:
    """The guarded call around this one, if its transaction is that of this one as well."""
    outer = attempts.running()
    transaction = outer and outer.transaction
    if not isinstance(transaction, CallTransaction) or transaction.store is not guard.store:
        return None
    if not transaction.is_open:
        return None  # as in what is called after the commit
    if rules.policy.effects == "database":
        return outer
    if (begun := transaction.begun) is not None and begun.locks_database:
        raise NotJoined(
            f"the operation {action}, whose effects are not in the database, was called in a guarded call "
            "that has written to SQLite already: its key cannot be reserved beside that transaction, which "
            'locks the database. Call it before the first write, or give it effects="database" if it has no '
            "others"
        )
    return None


def _refuse_unfinished(value: object, action: str) -> None:
    """A coroutine, task or generator is not what came of a function, but work that is still to be done."""
    if isinstance(value, Awaitable | Generator | AsyncGenerator):
        kind = type(cast("object", value)).__name__
        if isinstance(value, Coroutine | Generator):
            cast("Coroutine[Any, Any, Any]", value).close()  # it will never be asked for
        raise TypeError(
            f"{action}: the function returned a {kind}, and so has not done its work: a "
            "decorator may hide that it is asynchronous. Decorate the `async def` itself with @operation, or "
            "use `await once(guard, ...).call_async(function, ...)`; a generator cannot be an operation"
        )


def _check_awaitable(value: object, action: str) -> None:
    if not isawaitable(value):
        raise TypeError(
            f"{action}: the function returned a {type(value).__name__}, which cannot be awaited: call "
            "it by `once(guard, ...).call(function, ...)`"
        )


def _message(error: Exception) -> str:
    try:
        return str(error)[:_LONGEST_MESSAGE]
    except Exception as trouble:  # noqa: BLE001 - of code of the exception's own, and the outcome is to be stored
        name = type(error).__qualname__
        log.warning("the text of a %s is not stored: it raised %s", name, type(trouble).__name__)
        return ""


def _failure(record: Record) -> Failure:
    at = iso(record.updated_at if record.completed_at is None else record.completed_at)
    try:
        said: object = loads(record.response.body) if record.response else None
    except (ValueError, RecursionError):
        said = None
    match said:
        case {"type": str(kind), "message": str(message)}:
            return Failure(kind, message, at)
        case _:
            return Failure(None, "", at)


class SyncCall(_Call[T]):
    """A call of a plain function."""

    def run_once(self) -> Done[T]:
        return self.result(call_sync(self.flow(), self._guard.runtime, self))

    def try_once(self) -> Done[T] | Refused:
        try:
            return self.run_once()
        except Refused as refused:
            return self.as_value(refused)

    def identify(self) -> Scope | None:
        owner = self._owner()
        if isinstance(owner, Awaitable):
            close = getattr(owner, "close", None)
            if close is not None:
                close()  # it will never be awaited
            raise ConfigurationError(
                f"{self.action}: the scope function is asynchronous and the operation is not: make the scope "
                "a plain function"
            )
        return scopes.resolve(owner)

    def read_body(self) -> bytes | TooLarge | Gone:
        raise AssertionError("the arguments are there from the beginning")

    def reauthorise(self) -> bool:
        raise AssertionError("the caller is asked by its application")

    def run(self, step: Run) -> Outcome:
        self._attempt = step.attempt
        left = attempts.enter(step.attempt)
        try:
            try:
                value = self._function()
                _refuse_unfinished(value, self.action)
            except Exception as error:  # noqa: BLE001 - raised again, when it is known what it means
                return self._raised(error)
            return self._returned(value)
        finally:
            attempts.leave(left)


class AsyncCall(_Call[T]):
    """A call of a coroutine function."""

    async def run_once(self) -> Done[T]:
        from retrysafe._runtime.drive_async import (
            call_async,
            call_within_async,
        )  # with asyncio, which is slow

        drive = call_async if self._outer is None else call_within_async
        return self.result(await drive(self.flow(), self._guard.runtime, self))

    async def try_once(self) -> Done[T] | Refused:
        try:
            return await self.run_once()
        except Refused as refused:
            return self.as_value(refused)

    async def identify(self) -> Scope | None:
        owner = self._owner()
        if isinstance(owner, Awaitable):
            owner = await owner
        return scopes.resolve(owner)

    async def read_body(self) -> bytes | TooLarge | Gone:
        raise AssertionError("the arguments are there from the beginning")

    def reauthorise(self) -> bool:
        raise AssertionError("the caller is asked by its application")

    async def run(self, step: Run) -> Outcome:
        self._attempt = step.attempt
        left = attempts.enter(step.attempt)
        try:
            try:
                begun = self._function()
                _check_awaitable(begun, self.action)
                value = await begun
            except Exception as error:  # noqa: BLE001 - raised again, when it is known what it means
                return self._raised(error)
            return self._returned(value)
        finally:
            attempts.leave(left)
