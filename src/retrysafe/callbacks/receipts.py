"""`receipts(guard, …)`: what is declared once of the callbacks from one source.

    finished = receipts(guard, source="jobs", id="callback_id", subject="run_id")

Everything that can be checked is checked here; what is left to each delivery is to read its event.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Generic, NamedTuple, TypeVar, Unpack, cast, get_args

from retrysafe._core import keys, tokens
from retrysafe._core.fingerprint import VERSION
from retrysafe._core.keys import framed
from retrysafe._core.model import Parts
from retrysafe._core.problems import Problem
from retrysafe._core.steps import Delivery
from retrysafe._http.exchange import usable_id
from retrysafe._runtime.transactions import MUST_BLOCK, begins_with_calls
from retrysafe.callbacks.functions import (
    VARIADIC,
    event_parameters,
    event_type,
    is_awaited,
    is_method,
    refuse_generator,
    refuse_unfinished,
)
from retrysafe.callbacks.handling import Handled, Handling, accept, accept_async
from retrysafe.callbacks.options import (
    CORRELATION,
    DETAILS,
    ID,
    RETRIES,
    SUBJECT,
    CallbackOptions,
    Check,
    Compare,
    Default,
    Part,
    Reader,
    check_compare,
    check_details,
    check_flag,
    check_name,
    check_retries,
    check_text,
    compile_options,
    name_of_receipts,
    reader_of,
    source_of,
)
from retrysafe.callbacks.payload import (
    MISSING,
    Parser,
    Payload,
    comparable,
    encode,
    invalid_payload,
    may_lack,
    pack,
    read,
    text,
)
from retrysafe.callbacks.receipt import Receipt
from retrysafe.callbacks.webhooks import PayloadInvalid, Webhook
from retrysafe.errors import ConfigurationError
from retrysafe.guard import Guard
from retrysafe.operations.arguments import name_of
from retrysafe.policy import MIB, CallbackRules, InProgress, Retries
from retrysafe.refusals import refusal
from retrysafe.stores.admin import Admin, Query
from retrysafe.stores.contract import Store

F = TypeVar("F", bound=Callable[..., Any])
E = TypeVar("E")

_LONGEST_SUBJECT = 1024
"""Bytes of UTF-8: far longer than an id, and indexed by every store.  PostgreSQL indexes at most 2704."""

_LONGEST_DETAIL = 4096
"""Characters: longer than any address that people use.  A detail is for people, and not worth a refusal, so
the rest of it is left out; the payload itself is what is compared and handled."""

PROCESSING = (("status", "processing"),)
"""What is said of the status until an event has been handled."""

_HANDLED = (("status", "handled"),)
"""The same of an event whose payload has none."""


class Receipts(Generic[E]):
    """The receipts of one source: see `receipts`."""

    def __init__(
        self,
        guard: Guard,
        source: "str | Callable[[E], object] | None",
        webhook: Webhook | None,
        name: str | None,
        id: "Part[E] | Default | None",
        subject: "Part[E] | Default | None",
        details: "Sequence[str] | Callable[[E], Mapping[str, object]] | Default",
        correlation: "Part[E] | Default | None",
        compare: "Compare[E]",
        check: "Check[E] | None",
        in_progress: InProgress,
        store_payload: bool,
        inbox: bool,
        max_payload: int,
        retries: Retries,
        message: str,
        options: CallbackOptions,
    ) -> None:
        if not isinstance(guard, Guard):
            raise ConfigurationError(
                f"receipts({guard!r}, ...): expected a Guard, such as Guard(store, scope=...)"
            )
        if webhook is not None and not isinstance(webhook, Webhook):
            raise ConfigurationError(
                f"receipts(webhook={webhook!r}) is not a sender of webhooks: expected one such as "
                "webhooks.stripe(secret)"
            )
        self.guard = guard
        self.webhook = webhook
        self._source: str | Callable[[E], object] = source_of(source, webhook)
        self.name = name_of_receipts(name, self._source)
        self._where = f"receipts {self.name!r}"
        if webhook is not None and not isinstance(id, Default):
            raise ConfigurationError(
                f"{self._where}: id= was given beside a webhook, which knows where its ids are: leave it out"
            )
        self._id = reader_of("id", id, self._where)
        self._subject = reader_of("subject", subject, self._where)
        self._correlation = reader_of("correlation", correlation, self._where)
        self._details = details
        check_details(details, self._where)
        self._compare = compare
        check_compare(compare, self._where)
        if check is not None and not callable(check):
            raise ConfigurationError(
                f"{self._where}: check={check!r} must be a function of the event that returns whether its "
                "run or resource exists"
            )
        self.check = check
        self.message = check_text("message", message, self._where)
        self.stores_payload = check_flag("store_payload", store_payload, self._where) or check_flag(
            "inbox", inbox, self._where
        )
        if isinstance(max_payload, bool) or not isinstance(max_payload, int) or max_payload < 1:
            raise ConfigurationError(
                f"{self._where}: max_payload={max_payload!r} must be a number of bytes greater than zero"
            )
        self.max_payload = max_payload
        if in_progress not in get_args(InProgress):
            raise ConfigurationError(
                f"{self._where}: in_progress={in_progress!r} is not a choice: it is one of "
                f"{', '.join(repr(choice) for choice in get_args(InProgress))}"
            )
        self.callback = CallbackRules(in_progress, inbox, check_retries(retries, self._where))
        self._refuse_useless(options)
        self.rules = compile_options(guard, options, self._where)
        if webhook is not None and self.rules.policy.retention < webhook.horizon:
            raise ConfigurationError(
                f"{self._where}: retention={self.rules.policy.retention:g} s is shorter than the "
                f"{webhook.horizon:g} s in which its sender may deliver an event again: it would be handled "
                "twice. Leave retention out, or make it longer"
            )
        self.run_handler: Callable[[E], Any] | None = None
        """What handles an event outside of a request: a worker's, and that of `handle`."""
        self._declared = False
        """Whether that was said by `@….handler`."""
        self._kind: object = None
        self._parser: Parser | None = None

    def _refuse_useless(self, options: CallbackOptions) -> None:
        """Refuse what would change nothing."""
        said: list[str] = []
        why = ""
        if self.inbox:
            said = [name for name in ("in_flight", "wait_for", "store_down") if name in options]
            said += ["in_progress"] if self.callback.in_progress != "refuse" else []
            why = "with inbox=True: a delivery is stored and acknowledged at once"
        elif not self.stores_payload:
            said = ["retries"] if self.callback.retries != RETRIES else []
            said += ["max_payload"] if self.max_payload != MIB else []
            why = "without store_payload=True or inbox=True: no payload is stored, and no worker handles it"
        if said:
            raise ConfigurationError(f"{self._where}: {said[0]}= changes nothing {why}. Leave it out")

    def __repr__(self) -> str:
        return f"<receipts {self.name!r}>"

    # --- handlers

    @property
    def inbox(self) -> bool:
        """Whether a delivery is acknowledged as soon as it is stored, and handled by a worker."""
        return self.callback.inbox

    def fastapi(self, function: F) -> F:
        """Have an endpoint of FastAPI's handle each event once; its first parameter is the event."""
        from retrysafe.callbacks.http.fastapi import decorate

        return decorate(self, function)

    def starlette(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Make an endpoint of Starlette's of a function of the event, and of the request if it takes both."""
        from retrysafe.callbacks.http.starlette import decorate

        return decorate(self, function)

    def flask(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Make a view of Flask's of a function of the event."""
        from retrysafe.callbacks.http.flask import decorate

        return decorate(self, function)

    def django(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Make a view of Django's, or a method of a class-based one, of a function of the event."""
        from retrysafe.callbacks.http.django import decorate

        return decorate(self, function)

    def handler(self, function: F) -> F:
        """Have a function of the event called by `handle`, and by a worker.  It stays as it is."""
        if inspect.isclass(function) or not callable(function):
            raise ConfigurationError(f"{self!r} decorated {function!r}: expected a function of the event")
        refuse_generator(self, function)
        self.register(function, event_type(function), only_event=True)
        return function

    def register(self, function: Callable[..., Any], kind: object, *, only_event: bool) -> None:
        """Note what handles an event; called by decorators."""
        if is_awaited(function) and self._must_block:
            raise ConfigurationError(f"{name_of(function)}: {MUST_BLOCK}")
        _, *others = event_parameters(function)
        needed = [one for one in others if one.default is one.empty and one.kind not in VARIADIC]
        if is_method(function):
            needed.insert(0, next(iter(inspect.signature(function).parameters.values())))
        if needed:
            if only_event or (self.stores_payload and not self._declared):
                raise ConfigurationError(
                    f"{name_of(function)} takes {needed[0].name!r} besides the event, which a worker does "
                    "not have: it is given the stored payload alone. Open what it needs in the function, or "
                    f"put @{self.name}.handler on another function of the event before this one"
                )
            return
        if self.stores_payload and self.run_handler not in (None, function) and not self._declared:
            raise ConfigurationError(
                f"{name_of(function)}: a worker of {self._where} calls {name_of(self.run_handler)} already, "
                "and would never call this one. Give it receipts with a source of its own, or say with "
                f"@{self.name}.handler, before both, what a worker calls"
            )
        if self.run_handler is not None and only_event:
            raise ConfigurationError(
                f"{self._where} have a handler already, {name_of(self.run_handler)}: there is one for each"
            )
        if self.run_handler is None or only_event:
            self._declared = only_event
            self.run_handler = function
            self._kind, self._parser = kind, None
            if only_event or self.stores_payload:
                self._parser = Parser(kind, self._where)

    @property
    def _must_block(self) -> bool:
        return self.rules.policy.effects == "database" and begins_with_calls(self.guard.store)

    def parse(self, payload: Payload) -> E:
        """The event of a payload, as the handler takes it.  Raises `PayloadInvalid`."""
        if self.run_handler is None:
            raise ConfigurationError(
                f"{self._where} have no handler, so it is not known what an event is: decorate one with "
                "@….handler"
            )
        if self._parser is None:
            self._parser = Parser(self._kind, self._where)
        event: E = self._parser(payload)
        return event

    # --- outside of HTTP

    def handling(self, event: E) -> Handling[E]:
        """Handle an event in a `with` or `async with` block, unless it was handled before.

        Entering raises `AlreadyHandled` where it was, and a `Refused` where it cannot be handled now: then it
        is not to be acknowledged, so that it is delivered again.
        """
        if self.inbox:
            raise ConfigurationError(
                f"{self._where} are an inbox, whose events a worker handles: use handle(event) instead"
            )
        return Handling(self, event)

    def handle(self, event: E) -> Handled:
        """Have an event handled by the handler, unless it was handled before.

        With `inbox=True` it is stored for a worker.  Raises what the handler raises, or a `Refused`.
        """
        function = self._registered(awaited=False)
        if self.inbox:
            return accept(self, event)
        with Handling(self, event, raises_duplicate=False) as handling:
            if not handling.is_duplicate:
                refuse_unfinished(function, function(event))
        return handling.handled()

    async def handle_async(self, event: E) -> Handled:
        """The same for a handler that is a coroutine function."""
        function = self._registered(awaited=True)
        if self.inbox:
            return await accept_async(self, event)
        async with Handling(self, event, raises_duplicate=False) as handling:
            if not handling.is_duplicate:
                await function(event)
        return handling.handled()

    def _registered(self, *, awaited: bool) -> Callable[[E], Any]:
        function = self.run_handler
        if function is None:
            raise ConfigurationError(
                f"{self._where} have no handler: decorate one with @….handler, or use handling(event)"
            )
        if not self.inbox and is_awaited(function) is not awaited:
            use = "await ….handle_async(event)" if not awaited else "handle(event)"
            kind = "a coroutine function" if not awaited else "not a coroutine function"
            raise ConfigurationError(f"{name_of(function)} is {kind}: use {use}")
        return function

    # --- receipts

    def list(self, subject: str, limit: int = 100) -> Sequence[Receipt]:
        """The receipts of a run or resource, the youngest first.

        For operators' pages: it opens a connection of its own, and blocks.
        """
        query = Query(door="callback", action=self.name, target=subject)
        return self._find(query, limit)

    def find(self, id: str) -> Receipt | None:
        """The receipt of an event; blocks as `list` does.  Of several sources with this id, the latest."""
        if isinstance(self._source, str):
            # By its identity: no table is scanned for it, and it is found if its id is not stored.
            scope = (("source", self._source),)
            record = self.guard.store.look(keys.digest("callback", scope, id, self.rules.identity_secret))
            if record is not None:
                return Receipt.of(record.record)
        found = self._find(Query(door="callback", action=self.name, key=id), 1)
        return found[0] if found else None

    def _find(self, query: Query, limit: int) -> Sequence[Receipt]:
        admin = open_admin(self.guard.store)
        try:
            found = [Receipt.of(sighting.record) for sighting in admin.list(query, limit)]
        finally:
            admin.close()
        return sorted(found, key=lambda receipt: receipt.received_at, reverse=True)

    # --- one delivery

    def delivery(
        self,
        event: E,
        payload: Payload | None = None,
        request_id: str | None = None,
        correlation_id: bytes | None = None,
    ) -> Delivery | Problem | None:
        """One delivery of an event; `None`: it has no id, and is handled as always.

        `payload` is what came over HTTP, with all of its headers; without it, it is made of the event.
        `correlation_id` is that of the request, for an event that has none.
        """
        try:
            return self._delivery(event, payload, request_id, correlation_id)
        except PayloadInvalid as invalid:
            return invalid_payload(invalid)

    def _delivery(
        self, event: E, payload: Payload | None, request_id: str | None, correlation_id: bytes | None
    ) -> Delivery | Problem | None:
        found = self._identify(event, payload)
        if not isinstance(found, _Identified):
            return found
        id, scope = found
        if isinstance(checked := check_name("id", id), Problem):
            return checked
        subject = _optional(self._subject, event, "subject") or ""
        if len(subject.encode("utf-8", "surrogatepass")) > _LONGEST_SUBJECT:
            return Problem(
                "payload-invalid", f"The subject of this event has more than {_LONGEST_SUBJECT} bytes."
            )
        stored = None
        if self.stores_payload:
            stored_payload = self._worth_storing(event, payload)
            stored = pack(stored_payload)
            if len(stored) > self.max_payload:
                return Problem("body-too-large", f"The payload is larger than {self.max_payload} bytes.")
            if self.run_handler is not None:
                self.parse(stored_payload)  # what no worker could read is not to be acknowledged
        # Something else would not be worth a refusal.
        correlation = text(self._found(self._correlation, event))
        correlation = correlation and usable_id(correlation.encode(errors="replace"))
        return Delivery(
            self.name,
            scope,
            id,
            subject,
            self._fingerprint(event, payload),
            request_id or tokens.draw().hex(),
            correlation or (usable_id(correlation_id) if correlation_id else None),
            (*(detail for detail in self._said(event) if detail[0] != "status"), *PROCESSING),
            self.handled_details(event),
            stored,
        )

    def handled_details(self, event: E) -> Parts:
        """What is said of an event once it has been handled: the payload's own status."""
        return tuple(detail for detail in self._said(event) if detail[0] == "status") or _HANDLED

    def _identify(self, event: E, payload: Payload | None) -> "_Identified | Problem | None":
        origin = ""
        if self.webhook is not None:
            if payload is None:
                payload = encode(event, self._where)
            id, origin = self.webhook.identify(payload.headers, payload.body)
        else:
            found = self._found(self._id, event)
            if found is MISSING and may_lack(event, self._id):
                found = None
            if found is MISSING:
                part = ".".join(cast("tuple[str, ...]", self._id))  # a function does not miss any
                raise ConfigurationError(
                    f"{self._where}: the event, a {type(event).__name__}, has no part {part!r} that "
                    "would be its id: say with id= where it is, by its name or by a function of the event"
                )
            if found is None or found == "":
                if not self.inbox:
                    return None
                found = tokens.draw().hex()  # each delivery is an event of its own, as always
            id = text(found) or ""
            if not id:
                return Problem("payload-invalid", f"The id of an event cannot be a {type(found).__name__}.")
        source = self._source if isinstance(self._source, str) else text(self._source(event))
        if not source:
            return Problem("payload-invalid", "The source of this event is not known.")
        if source is not self._source and isinstance(checked := check_name("source", source), Problem):
            return checked
        if len(origin.encode("utf-8", "surrogatepass")) > _LONGEST_SUBJECT:
            return Problem(
                "payload-invalid", f"The source of this event has more than {_LONGEST_SUBJECT} bytes."
            )
        scope: Parts = (("source", source),)
        return _Identified(id, (*scope, ("origin", origin)) if origin else scope)

    def _worth_storing(self, event: E, payload: Payload | None) -> Payload:
        if payload is None:
            return encode(event, self._where)
        names = self.webhook.stored_headers if self.webhook is not None else ("content-type",)
        headers = {name: payload.headers[name] for name in names if name in payload.headers}
        return Payload(payload.body, headers)

    def _said(self, event: E) -> Parts:
        details = self._details
        if callable(details):
            pairs = details(event).items()
            return tuple((str(name), _shown(value)) for name, value in pairs if value is not None)
        names: Sequence[str] = details.names if isinstance(details, Default) else details
        said: list[tuple[str, str]] = []
        for name in names:
            value = read(event, tuple(name.split(".")))
            if value is MISSING or value is None:
                continue
            said.append((name, _shown(getattr(value, "value", value))))
        return tuple(said)

    def _fingerprint(self, event: E, payload: Payload | None) -> bytes:
        compare = self._compare
        hashed = sha256(framed("callback"))
        if compare is None:
            pass
        elif callable(compare):
            hashed.update(comparable(compare(event), self._where))
        elif not isinstance(compare, str):
            for name in compare:
                value = read(event, tuple(name.split(".")))
                if value is MISSING:
                    hashed.update(framed(name))
                else:
                    hashed.update(framed(name, "=") + comparable(value, self._where))
        elif self.webhook is not None:
            payload = payload or encode(event, self._where)
            hashed.update(self.webhook.compared(payload.headers, payload.body))
        else:
            hashed.update(comparable(event, self._where))
        return VERSION + hashed.digest()

    def _found(self, part: "Reader", event: E) -> object:
        return part(event) if callable(part) else read(event, part)

    def refuse(self, problem: Problem) -> Exception:
        """A problem as an exception, where there is no HTTP."""
        return refusal(problem, self.rules, self.name, door="callback")


def open_admin(store: Store) -> Admin:
    """Administration of a store that has its tables, as it does after the first event."""
    store.look(bytes(32))  # makes them, where a service may
    return store.open_admin()


class _Identified(NamedTuple):
    """Which event it is."""

    id: str
    scope: Parts


def _shown(value: object) -> str:
    said = str(value)
    return said if len(said) <= _LONGEST_DETAIL else f"{said[: _LONGEST_DETAIL - 1]}…"


def _optional(part: "Reader", event: object, what: str) -> str | None:
    found = part(event) if callable(part) else read(event, part)
    if found is MISSING or found is None:
        return None
    if (said := text(found)) is None:
        raise PayloadInvalid(f"its {what} is a {type(found).__name__}: expected an id, as text")
    return said


def receipts(
    guard: Guard,
    *,
    source: "str | Callable[[Any], object] | None" = None,
    webhook: Webhook | None = None,
    name: str | None = None,
    id: "Part[Any] | Default | None" = ID,
    subject: "Part[Any] | Default | None" = SUBJECT,
    details: "Sequence[str] | Callable[[Any], Mapping[str, object]] | Default" = DETAILS,
    correlation: "Part[Any] | Default | None" = CORRELATION,
    compare: "Compare[Any]" = "all",
    check: "Check[Any] | None" = None,
    in_progress: InProgress = "refuse",
    store_payload: bool = False,
    inbox: bool = False,
    max_payload: int = MIB,
    retries: Retries = RETRIES,
    message: str = "Callback already processed",
    **options: Unpack[CallbackOptions],
) -> Receipts[Any]:
    """Handle each event from a source once, however often it is delivered.

    `source` says whose ids they are, `id` where an event has its id; a `webhook` knows both.  `subject` is
    the run or resource that it is about, by which receipts are listed.  `check` says whether that exists,
    before anything is claimed.  `compare` is what must be the same in each delivery of one event.

    With `store_payload` a worker (`retrysafe work`) handles what failed or was interrupted, if its sender
    does not come back; with `inbox` it handles everything, and senders are acknowledged as soon as it is
    stored."""
    return Receipts(
        guard,
        source,
        webhook,
        name,
        id,
        subject,
        details,
        correlation,
        compare,
        check,
        in_progress,
        store_payload,
        inbox,
        max_payload,
        retries,
        message,
        options,
    )
