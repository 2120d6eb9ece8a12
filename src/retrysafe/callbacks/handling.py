"""Handling one event outside of HTTP: a block of code, or a function, that runs once.

    with suppress(AlreadyHandled), finished.handling(event):
        ...

What is raised in the block is the outcome of a failed attempt, and goes on to its caller: the event is
handled again when it is delivered again.
"""

from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from inspect import iscoroutinefunction
from time import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, Self, TypeVar, cast

from retrysafe._core import attempt as attempts
from retrysafe._core import problems, protocol, tokens
from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Claim, Door, Record, Response
from retrysafe._core.problems import Problem
from retrysafe._core.steps import Delivery, Flow, Outcome, Raised, Responded, Result, Run
from retrysafe._runtime.drive_sync import break_off_sync, call_sync, claim_sync, conclude_sync
from retrysafe._runtime.runtime import LATER, Later
from retrysafe._runtime.transactions import CallTransaction
from retrysafe.callbacks.functions import is_awaited
from retrysafe.callbacks.payload import Payload
from retrysafe.callbacks.receipt import Receipt
from retrysafe.callbacks.webhooks import SignatureInvalid
from retrysafe.errors import ConfigurationError, NotJoined, RetrysafeError

if TYPE_CHECKING:
    from retrysafe.callbacks.receipts import Receipts

E = TypeVar("E")

_DONE = Response(200)


class AlreadyHandled(RetrysafeError):
    """The event was handled before: acknowledge it, and do nothing."""

    def __init__(self, receipt: Receipt) -> None:
        super().__init__(
            f"the event {receipt.id or 'with this id'} of {receipt.source} was handled before: it was "
            f"received at {receipt.received_at.isoformat()}"
        )
        self.receipt = receipt

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.receipt,)


class Handled(NamedTuple):
    """What became of a delivery: acknowledge it."""

    duplicate: bool
    """Whether the event was handled, or stored, before."""
    stored: bool = False
    """Whether it is stored for a worker, and not handled yet."""
    receipt: Receipt | None = None
    """Of the delivery before, where it is a duplicate."""


class DeliveryCall:
    """What every call of the callback door tells its drivers and observers, HTTP or not."""

    door: Door = "callback"
    claim: Claim | None = None
    background = 0.0
    route = ""

    def __init__(self, receipts: "Receipts[Any]", delivery: Delivery | None) -> None:
        self.receipts = receipts
        self.source = receipts.name
        self.delivery = delivery
        self.described: Problem | None = None

    @property
    def action(self) -> str:
        return self.receipts.name

    @property
    def target(self) -> str:
        return self.delivery.subject if self.delivery is not None else ""

    def owner(self) -> str:
        return f"the source of {self.receipts!r}"

    def status(self, result: Result) -> int | None:  # noqa: ARG002 - there is no wire
        return None

    def close(self) -> None:
        """Nothing: it holds nothing."""

    def desert(self) -> None:
        """Nothing: what the handler does is stored."""

    def describe(self, problem: Problem) -> Response:
        self.described = problem
        rules = self.receipts.rules
        return problems.render(problem, rules.wire.specification, rules.rendering.problems)

    def flow(self) -> Flow[Result]:
        receipts, delivery = self.receipts, self.delivery
        assert delivery is not None
        runtime = receipts.guard.runtime
        return protocol.receive(
            delivery,
            receipts.rules,
            receipts.callback,
            self.describe,
            tokens.draw(),
            runtime.is_draining,
            runtime.secret,
        )

    # --- steps that this door has nothing to do for: all of it is known when the flow begins

    def identify(self) -> NoReturn:
        raise AssertionError("the source of a delivery is known from the beginning")

    def read_body(self) -> NoReturn:
        raise AssertionError("the payload of a delivery is there from the beginning")

    def reauthorise(self) -> NoReturn:
        raise AssertionError("the sender of a delivery is known from the beginning")

    # --- what the caller gets

    def refusal(self, problem: Problem) -> Exception:
        return self.receipts.refuse(problem)

    def refused(self, result: Result) -> Exception | None:
        """Why an event is not handled now, if that is so."""
        reply = result.reply
        match reply:
            case Problem():
                error = self.refusal(reply)
            case Record(state="failed"):
                error = self.refusal(
                    Problem("previously-failed", "An earlier delivery of this event failed.")
                )
            case Record():
                return AlreadyHandled(Receipt.of(reply))
            case _ if result.verdict == "unstored":
                error = self.refusal(Problem("store-unavailable", "That it was handled could not be stored."))
            case _ if self.described is not None and result.verdict in ("released", "failed"):
                error = self.refusal(self.described)
            case _:
                return None
        error.__cause__ = result.error or result.trouble
        return error


class Handling(DeliveryCall, Generic[E]):
    """One event, while a block of code handles it."""

    is_duplicate = False
    """Whether the event was handled by another delivery."""

    def __init__(self, receipts: "Receipts[E]", event: E, *, raises_duplicate: bool = True) -> None:
        super().__init__(receipts, None)
        self._event = event
        self._raises_duplicate = raises_duplicate
        self._attempt: Attempt | None = None
        self._left: Any = None
        self._flow: Flow[Result] | None = None
        self._receipt: Receipt | None = None
        self._entered = False

    def run(self, step: Run) -> Later:  # noqa: ARG002 - the block of code runs from now on
        return LATER

    @property
    def id(self) -> str | None:
        """The id of the event; `None`: it has none, and is handled as always."""
        return self.delivery.id if self.delivery is not None else None

    @property
    def subject(self) -> str:
        """The run or resource that it is about."""
        return self.target

    @property
    def attempt(self) -> int:
        """How often it was begun to be handled, this time included; 0 for one without an id."""
        return self._attempt.number if self._attempt is not None else 0

    def __enter__(self) -> Self:
        runtime = self.receipts.guard.runtime
        receipts, event = self.receipts, self._event
        if not self._begin(check_signature(receipts, event) or check_subject(receipts, event)):
            return self
        assert self._flow is not None
        self._entered_with(claim_sync(self._flow, runtime, self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._attempt is None:
            return
        self._leave()
        assert self._flow is not None
        runtime = self.receipts.guard.runtime
        if error is not None and not isinstance(error, Exception):
            with _raised_by_the_block(error):
                break_off_sync(self._flow, runtime, self, error)
            return
        self._conclude(conclude_sync(self._flow, runtime, self, _outcome(error)), error)

    async def __aenter__(self) -> Self:
        from retrysafe._runtime.drive_async import claim_async  # with asyncio, which is slow

        runtime = self.receipts.guard.runtime
        receipts, event = self.receipts, self._event
        if not self._begin(check_signature(receipts, event) or await check_subject_async(receipts, event)):
            return self
        assert self._flow is not None
        self._entered_with(await claim_async(self._flow, runtime, self))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from retrysafe._runtime.drive_async import break_off_async, conclude_async

        if self._attempt is None:
            return
        self._leave()
        assert self._flow is not None
        runtime = self.receipts.guard.runtime
        if error is not None and not isinstance(error, Exception):
            with _raised_by_the_block(error):
                await break_off_async(self._flow, runtime, self, error)
            return
        self._conclude(await conclude_async(self._flow, runtime, self, _outcome(error)), error)

    def _leave(self) -> None:
        # Entered and left in two contexts, as by a generator that a framework runs in threads, there is
        # nothing to be left: the attempt was never the current one here.
        with suppress(ValueError):
            attempts.leave(self._left)

    def handled(self) -> Handled:
        """What became of it, after the block."""
        return Handled(self.is_duplicate, False, self._receipt)

    def _begin(self, problem: Problem | None) -> bool:
        """Whether there is something to claim."""
        if self._entered:
            raise ConfigurationError(
                f"{self.receipts!r}: handling(event) was entered twice: call it for each event"
            )
        self._entered = True
        found = problem or self.receipts.delivery(self._event)
        if found is None:
            self.receipts.guard.runtime.keyless(
                self.receipts.name, "", "", warn=False, door="callback", source=self.receipts.name
            )
            return False
        if isinstance(found, Problem):
            self.receipts.guard.runtime.end(self, Result(found.code, found))
            raise self.refusal(found)
        _refuse_nested(self.receipts)
        self.delivery = found
        self._flow = self.flow()
        return True

    def _entered_with(self, reached: Result | Run) -> None:
        if isinstance(reached, Run):
            self._attempt = reached.attempt
            self._left = attempts.enter(reached.attempt)
            return
        error = self.refused(reached)
        assert error is not None, "what does not run is refused"
        if isinstance(error, AlreadyHandled) and not self._raises_duplicate:
            self.is_duplicate = True
            self._receipt = error.receipt
            return
        raise error

    def _conclude(self, result: Result, error: Exception | None) -> None:
        if error is not None:
            return  # it goes on to the caller
        refused = self.refused(result)
        if isinstance(refused, AlreadyHandled):
            # Another attempt had taken it over meanwhile, and has handled it.
            self.is_duplicate = True
            self._receipt = refused.receipt
        elif refused is not None:
            raise refused


def _outcome(error: Exception | None) -> Outcome:
    return Responded(_DONE, False, ()) if error is None else Raised(error)


@contextmanager
def _raised_by_the_block(error: BaseException) -> Generator[None]:
    """It goes on to the caller by itself, when the block is left."""
    try:
        yield
    except BaseException as raised:
        if raised is not error:
            raise


def _refuse_nested(receipts: "Receipts[Any]") -> None:
    running = attempts.running()
    transaction = running and running.transaction
    if (
        isinstance(transaction, CallTransaction)
        and transaction.store is receipts.guard.store
        and transaction.is_open
    ):
        raise NotJoined(
            f"{receipts!r}: an event was to be handled inside of another guarded call, whose transaction is "
            "open: its receipt could not be stored beside it. Handle it outside of that call"
        )


def check_signature(receipts: "Receipts[Any]", payload: object) -> Problem | None:
    """Why a delivery is refused before anything else is asked: it is not its sender's.

    What is no `Payload` has no signature: what it says was read by the application.
    """
    if receipts.webhook is None or not isinstance(payload, Payload):
        return None
    try:
        receipts.webhook.verify(payload.headers, payload.body, time())
    except SignatureInvalid as invalid:
        return Problem("signature-invalid", f"The signature is not valid: {invalid.reason}")
    return None


def check_subject(
    receipts: "Receipts[E]", event: E, ensure_sync: Callable[[Any], Any] = lambda check: check
) -> Problem | None:
    """Why an event is refused before it is looked up.

    `ensure_sync` makes a plain function of a coroutine function, where a framework can.
    """
    check: Any = receipts.check
    if check is None:
        return None
    if is_awaited(check) and not iscoroutinefunction(check):
        check = check.__call__
    found = ensure_sync(check)(event)
    if isinstance(found, Awaitable):
        if isinstance(found, Coroutine):
            found.close()  # it will never be awaited
        raise ConfigurationError(
            f"{receipts!r}: check= is asynchronous, and the event is handled without an event loop: make it "
            "a plain function"
        )
    return None if found else UNKNOWN_SUBJECT


async def check_subject_async(
    receipts: "Receipts[E]",
    event: E,
    in_thread: Callable[[Callable[[E], object]], Callable[[E], Awaitable[object]]] | None = None,
) -> Problem | None:
    """The same on an event loop.  `in_thread` has a plain function called where a framework wants it."""
    check = receipts.check
    if check is None:
        return None
    found: object
    if is_awaited(check):
        found = check(event)
    elif in_thread is not None:
        found = await in_thread(check)(event)
    else:
        import asyncio  # which is slow

        # A plain function that asks a database would keep the event loop from everything else.
        found = await asyncio.to_thread(check, event)
    if isinstance(found, Awaitable):
        found = await cast("Awaitable[object]", found)
    return None if found else UNKNOWN_SUBJECT


UNKNOWN_SUBJECT = Problem("subject-unknown", "The run or resource that this is about does not exist.")


class _Accepting(DeliveryCall):
    """One event that is stored for a worker."""

    def run(self, step: Run) -> NoReturn:  # noqa: ARG002 - there is none
        raise AssertionError("what is stored for a worker does not run here")


def accept(receipts: "Receipts[E]", event: E) -> Handled:
    """Store an event for a worker."""
    call = _accepting(receipts, event, check_signature(receipts, event) or check_subject(receipts, event))
    return _accepted(call, call_sync(call.flow(), receipts.guard.runtime, call))


async def accept_async(receipts: "Receipts[E]", event: E) -> Handled:
    """The same for coroutines."""
    from retrysafe._runtime.drive_async import call_async

    refused = check_signature(receipts, event) or await check_subject_async(receipts, event)
    call = _accepting(receipts, event, refused)
    return _accepted(call, await call_async(call.flow(), receipts.guard.runtime, call))


def _accepting(receipts: "Receipts[E]", event: E, problem: Problem | None) -> _Accepting:
    found = problem or receipts.delivery(event)
    assert found is not None, "in an inbox each event has an id"
    call = _Accepting(receipts, None if isinstance(found, Problem) else found)
    if isinstance(found, Problem):
        receipts.guard.runtime.end(call, Result(found.code, found))
        raise call.refusal(found)
    _refuse_nested(receipts)
    return call


def _accepted(call: _Accepting, result: Result) -> Handled:
    if result.verdict == "accepted":
        return Handled(False, True)
    if result.verdict == "waiting" and isinstance(result.reply, Record):
        return Handled(True, True, Receipt.of(result.reply))
    refused = call.refused(result)
    assert refused is not None
    if isinstance(refused, AlreadyHandled):
        return Handled(True, False, refused.receipt)
    raise refused
