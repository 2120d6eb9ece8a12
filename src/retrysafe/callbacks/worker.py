"""A worker: handles payloads that are stored and not handled, whether their sender comes back or not.

    retrysafe work app:finished

It asks the store for what is due, takes it over, and calls the handler of the receipts.  Any number of
workers may run, beside services that handle deliveries themselves: of several that see the same, one gets it.
"""

import random
import sys
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from retrysafe._core import attempt as attempts
from retrysafe._core import protocol, tokens
from retrysafe._core.model import Parts, Response
from retrysafe._core.steps import Flow, Outcome, Raised, Receipt, Responded, Result, Run
from retrysafe._core.times import Duration, seconds
from retrysafe._runtime.drive_sync import call_sync
from retrysafe._runtime.log import Log
from retrysafe.callbacks.functions import is_awaited, refuse_unfinished
from retrysafe.callbacks.handling import DeliveryCall
from retrysafe.callbacks.payload import unpack
from retrysafe.callbacks.receipts import PROCESSING, Receipts, open_admin
from retrysafe.errors import ConfigurationError, SchemaMismatch, StoreError
from retrysafe.stores.admin import Admin, Due

log = Log("retrysafe.worker")

_DONE = Responded(Response(200), False, ())

_LONGEST_PAUSE = 30.0
"""Seconds between two tries to reach a store that cannot be used."""


class Worker:
    """Handles what is due of some receipts, `concurrency` events at a time.

    `poll` is how long it waits before it looks again where nothing was due.
    """

    def __init__(self, receipts: Receipts[Any], *, concurrency: int = 4, poll: Duration = 1.0) -> None:
        if not isinstance(receipts, Receipts):
            raise ConfigurationError(
                f"Worker({receipts!r}): expected receipts, as receipts(guard, ...) makes them"
            )
        if not receipts.stores_payload:
            raise ConfigurationError(
                f"{receipts!r} store no payloads, so there is nothing for a worker: build them with "
                "store_payload=True, or inbox=True"
            )
        if receipts.run_handler is None:
            raise ConfigurationError(
                f"{receipts!r} have no handler: decorate a function of the event with @….handler, or import "
                "the module that does"
            )
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
            raise ConfigurationError(f"concurrency={concurrency!r} must be a whole number greater than zero")
        try:
            self._poll = seconds(poll)
        except ValueError as refusal:
            raise ConfigurationError(f"poll={refusal}") from None
        if self._poll <= 0:
            raise ConfigurationError(f"poll={poll!r} must be greater than zero")
        self._receipts = receipts
        self._function = receipts.run_handler
        self._concurrency = concurrency
        self._stopped = False
        self._wake: SimpleQueue[None] = SimpleQueue()
        """Not an `Event`, whose lock the thread may hold that a signal interrupts, and then waits for it."""
        self._admin: Admin | None = None
        self._pause = 0.0
        self._taken: set[bytes] = set()
        """Identities of what is being handled here."""
        self._aside: dict[bytes, tuple[float, float]] = {}
        """Until when, by this process's clock, and after which pause: what is due and could not be begun."""
        self.handled = 0
        self.failed = 0

    @property
    def is_async(self) -> bool:
        """Whether the handler is a coroutine function: then `run_async` is to be used."""
        return is_awaited(self._function)

    def stop(self) -> None:
        """Take nothing new; `run` returns when what is being handled has been.  For signal handlers, too."""
        self._stopped = True
        self._wake.put(None)

    def run(self, *, until_idle: bool = False) -> None:
        """Handle what is due, until it is stopped; with `until_idle`, until nothing is due, or a `StoreError`
        where the store cannot be used for a minute."""
        if self.is_async:
            raise ConfigurationError(
                f"the handler of {self._receipts!r} is a coroutine function: use run_async()"
            )
        if self._concurrency == 1:
            self._run_here(until_idle=until_idle)
            return
        running: set[Future[None]] = set()
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="retrysafe-worker") as pool:
            try:
                while not self._stopped:
                    due = self._look(self._concurrency - len(running), until_idle=until_idle)
                    running |= {pool.submit(self._handle, one) for one in due}
                    if not due and not running and until_idle and self._pause == 0.0:
                        return
                    running = self._wait(running, found=bool(due))
            finally:
                wait(running)
                self._close()

    def _run_here(self, *, until_idle: bool) -> None:
        """One at a time, in the caller's thread: what belongs to a thread is, in a test, that of the test."""
        try:
            while not self._stopped:
                due = self._look(1, until_idle=until_idle)
                for one in due:
                    self._handle(one)
                if not due:
                    if until_idle and self._pause == 0.0:
                        return
                    self._sleep(self._pause or self._poll)
        finally:
            self._close()

    def _wait(self, running: set[Future[None]], *, found: bool) -> set[Future[None]]:
        """Wait until a place is free, or it is time to look again.  Gives what is left running."""
        pause = 0.0 if found else self._pause or self._poll
        if not running:
            self._sleep(pause)
            return running
        patience = None if len(running) >= self._concurrency else pause
        done, left = wait(running, patience, FIRST_COMPLETED)
        for one in done:
            one.result()  # raises what ends a process
        return left

    def _handle(self, due: Due) -> None:
        _close_old_connections()
        try:
            call = _SyncWork(self._receipts, due, self._function)
            self._note(due, call, call_sync(call.flow(), self._receipts.guard.runtime, call))
        except Exception:
            self._set_aside(due)
            log.exception("%s: what came of %s is not known", self._receipts.name, _named(due))
        finally:
            self._taken.discard(due.record.id)
            _close_old_connections()

    async def run_async(self, *, until_idle: bool = False) -> None:
        """The same for a handler that is a coroutine function, on the running event loop."""
        import asyncio

        from retrysafe._runtime.drive_async import call_async

        if not self.is_async:
            raise ConfigurationError(f"the handler of {self._receipts!r} is a plain function: use run()")

        async def handle(due: Due) -> None:
            await _close_old_connections_async()
            try:
                call = _AsyncWork(self._receipts, due, self._function)
                self._note(due, call, await call_async(call.flow(), self._receipts.guard.runtime, call))
            except Exception:
                self._set_aside(due)
                log.exception("%s: what came of %s is not known", self._receipts.name, _named(due))
            finally:
                self._taken.discard(due.record.id)
                await _close_old_connections_async()

        running: set[asyncio.Task[None]] = set()
        try:
            while not self._stopped:
                due = await asyncio.to_thread(
                    self._look, self._concurrency - len(running), until_idle=until_idle
                )
                running |= {asyncio.ensure_future(handle(one)) for one in due}
                if not due and not running and until_idle and self._pause == 0.0:
                    return
                pause = 0.0 if due else self._pause or self._poll
                if running:
                    patience = None if len(running) >= self._concurrency else pause
                    done, running = await asyncio.wait(
                        running, timeout=patience, return_when=asyncio.FIRST_COMPLETED
                    )
                    for one in done:
                        one.result()
                else:
                    await asyncio.to_thread(self._sleep, pause)
        finally:
            if running:
                await asyncio.wait(running)
            await asyncio.to_thread(self._close)

    # --- what both share

    def _sleep(self, pause: float) -> None:
        with suppress(Empty):
            self._wake.get(timeout=pause)

    def _look(self, places: int, *, until_idle: bool) -> list[Due]:
        """What is due and not taken here yet; nothing where the store cannot be used, logged once."""
        if places < 1:
            return []
        try:
            if self._admin is None:
                self._admin = open_admin(self._receipts.guard.store)
            # More than there is room for, in any order, so that several workers do not want the same; and
            # than what was set aside, which is due longest, so that the others are seen behind it.
            limit = 4 * self._concurrency + len(self._aside)
            found = self._admin.due(self._receipts.name, limit)
        except StoreError as trouble:
            if until_idle and (self._pause >= _LONGEST_PAUSE or isinstance(trouble, SchemaMismatch)):
                raise  # a job that is to end is not to wait for an operator
            if self._pause == 0.0:
                log.error("%s: what is due cannot be read, trying again: %s", self._receipts.name, trouble)
            self._pause = min(max(2 * self._pause, self._poll), _LONGEST_PAUSE)
            self._close()
            return []
        self._pause = 0.0
        if len(found) < limit:  # all that is due
            for gone in set(self._aside) - {due.record.id for due in found}:
                self._aside.pop(gone, None)
        now = time.monotonic()
        new = [
            due
            for due in found
            if due.record.id not in self._taken and self._aside.get(due.record.id, (0.0, 0.0))[0] <= now
        ]
        random.shuffle(new)
        self._taken |= {due.record.id for due in new[:places]}
        return new[:places]

    def _note(self, due: Due, call: "_Work", result: Result) -> None:
        if result.verdict in ("store-unavailable", "store-reset", "draining"):
            self._set_aside(due)
        else:
            self._aside.pop(due.record.id, None)
        match result.verdict:
            case "completed":
                self.handled += 1
            case "replayed" | "in-flight" | "gone" | "draining":
                pass  # another worker or delivery has it
            case _:
                self.failed += 1
                log.error(
                    "%s: %s was not handled (attempt %d): %s",
                    self._receipts.name,
                    _named(due),
                    result.attempt,
                    call.error or result.trouble or result.verdict,
                    exc_info=call.error,
                )

    def _set_aside(self, due: Due) -> None:
        """Leave it alone for a while: it is still due, and what kept it from being begun keeps on."""
        _, pause = self._aside.get(due.record.id, (0.0, 0.0))
        pause = min(max(2 * pause, self._poll), _LONGEST_PAUSE)
        self._aside[due.record.id] = time.monotonic() + pause, pause

    def _close(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()


def _close_old_connections() -> None:
    """Have Django, where handlers use it, close what broke or is too old, as it does around each request."""
    database: Any = sys.modules.get("django.db")
    if database is not None:
        for connection in database.connections.all(initialized_only=True):
            if not connection.in_atomic_block:  # of a test
                connection.close_if_unusable_or_obsolete()


async def _close_old_connections_async() -> None:
    """The same of the thread in which coroutines use Django's connections."""
    if "django.db" in sys.modules:
        asgiref: Any = sys.modules["asgiref.sync"]
        await asgiref.sync_to_async(_close_old_connections)()


def _named(due: Due) -> str:
    return f"record {due.record.id.hex()[:8]}"


class _Work(DeliveryCall):
    """One stored payload, and the handler that it is for."""

    error: Exception | None = None

    def __init__(self, receipts: Receipts[Any], due: Due, function: Callable[[Any], Any]) -> None:
        super().__init__(receipts, None)
        self._due = due
        self._function = function
        self._event: Any = None
        self._handled: Parts = ()
        self._unusable: Exception | None = None
        try:
            self._event = receipts.parse(unpack(due.payload))
            self._handled = receipts.handled_details(self._event)
        except Exception as error:  # noqa: BLE001 - the application's own code reads it, too
            # A failed attempt, like any other: what reads it may have been changed since, and may be again.
            self._unusable = error

    def _found(self) -> Any:  # noqa: ANN401 - an event
        if self._unusable is not None:
            raise self._unusable
        return self._event

    @property
    def target(self) -> str:
        return self._due.record.target

    def flow(self) -> Flow[Result]:
        receipts, record = self.receipts, self._due.record
        runtime = receipts.guard.runtime
        before = tuple(detail for detail in record.details if detail[0] not in ("status", "error"))
        return protocol.work(
            record,
            (*before, *PROCESSING),
            Receipt(self._handled, receipts.callback.retries),
            receipts.rules,
            self.describe,
            tokens.draw(),
            runtime.is_draining,
            runtime.secret,
        )


class _SyncWork(_Work):
    def run(self, step: Run) -> Outcome:
        left = attempts.enter(step.attempt)
        try:
            refuse_unfinished(self._function, self._function(self._found()))
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is an outcome
            self.error = error
            return Raised(error)
        finally:
            attempts.leave(left)
        return _DONE


class _AsyncWork(_Work):
    async def run(self, step: Run) -> Outcome:
        from asyncio import CancelledError  # slow to load

        from retrysafe._runtime.drive_async import cancelled_from_inside

        left = attempts.enter(step.attempt)
        try:
            await self._function(self._found())
        except CancelledError as error:
            self.error = cancelled_from_inside(error)
            return Raised(self.error)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is an outcome
            self.error = error
            return Raised(error)
        finally:
            attempts.leave(left)
        return _DONE
