"""`assert_idempotent`: for the tests of an application that retrysafe protects.

    def test_paying_twice(client):
        assert_idempotent(client, "POST", "/pay", json={"amount": 5}, effects=lambda: count("payments"))

It sends the request, repeats it, sends another body with the same key, sends it with a fresh key, and several
times at once, and says in a sentence what is wrong.  Plain `AssertionError`s: pytest is not needed, and no
client's library is imported.  `flow.py` has the checks, `clients.py` the kinds of clients.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from inspect import isawaitable, iscoroutine
from typing import TypedDict, TypeVar, Union, Unpack, cast

from retrysafe.guard import Guard
from retrysafe.policy import Wire
from retrysafe.profiles import Profile
from retrysafe.testing.assertions.clients import (
    AsyncHttpClient,
    AsyncSender,
    DjangoClient,
    HttpClient,
    Reply,
    Sender,
    WerkzeugClient,
    async_sender,
    check_threads,
    sender,
)
from retrysafe.testing.assertions.flow import Call, Check, Plan, Send, SendTogether, Step, Wrong
from retrysafe.testing.assertions.recognise import recognised
from retrysafe.testing.assertions.request import (
    BODIES,
    Changed,
    Pairs,
    Request,
    Template,
    checked_headers,
)

__all__ = ["assert_idempotent", "assert_idempotent_async"]

R = TypeVar("R")
V = TypeVar("V")
Made = Union[V, Callable[[], V], Callable[[], Awaitable[V]]]  # noqa: UP007 - mypy takes `|` for a value
"""A value, or a function that makes one for each key."""

CONCURRENT = 5
"""More than two: the more there are, the more likely is it that a race is lost.  A few milliseconds."""


class Other(TypedDict):
    """Another user: these headers, instead of those of the same name."""

    headers: Mapping[str, str]


class How(TypedDict, total=False):
    """The request, and what is different from the usual about the application."""

    json: object
    """The body, as JSON; like each of the next four it may be a function, called once for each key."""
    data: Made[Pairs | bytes | str]
    """The body, as a form; or as it is, where it is bytes or text."""
    content: Made[bytes | str]
    """The body as it is."""
    params: Made[Pairs]
    """The query, beside the one in the path."""
    headers: Made[Mapping[str, str]]
    """Without the key: a new one is made for each step."""
    expect: int
    """The status of the response, where it is not a success: refusals and failures are replayed, too."""
    changed: Changed | bool
    """What another request with the same key has instead.  By default one value of the body is changed;
    `False`: not checked, for routes that compare no bodies."""
    concurrent: int
    """How many duplicates are sent at once.  0: none, where the test's database has only one connection."""
    omitted: bool
    """The route stores no bodies (`no_store`, or larger than `max_response`): a replay has none."""
    other: "Other | HttpClient[object] | WerkzeugClient[object] | DjangoClient[object]"
    """Another user, by headers or with a client of their own."""
    ignore_headers: Collection[str]
    """Names of headers that a layer in front adds to each response, and that differ each time."""
    guard: Guard
    """The application's: names and statuses are those of its wire."""
    wire: Wire
    profile: str | Profile
    key_header: str


def assert_idempotent(
    client: HttpClient[R] | WerkzeugClient[R] | DjangoClient[R],
    method: str,
    path: str | Callable[[], str],
    *,
    effects: Callable[[], int] | None = None,
    **how: Unpack[How],
) -> R:
    """Send a request in the ways in which clients repeat it, and raise `AssertionError` if one goes wrong.

    `effects` counts what the handler does; without it, that a repeated request does not run is known only by
    what its response says.  Returns the first response.
    """
    __tracebackhide__ = True
    check, other = _prepare(method, path, effects, how)
    first, second = sender(client), None if other is None else sender(other)
    if how.get("concurrent", CONCURRENT):
        check_threads()
    try:
        return cast("R", _drive(check, first, second or first))
    except Wrong as found:
        message = str(found)
    raise AssertionError(message)


async def assert_idempotent_async(
    client: AsyncHttpClient[R],
    method: str,
    path: str | Callable[[], str | Awaitable[str]],
    *,
    effects: Callable[[], int | Awaitable[int]] | None = None,
    **how: Unpack[How],
) -> R:
    """The same with an `httpx.AsyncClient` or a `django.test.AsyncClient`, on the event loop of the test.

    `effects`, and functions of the request, may be coroutine functions.
    """
    __tracebackhide__ = True
    check, other = _prepare(method, path, effects, how)
    first, second = async_sender(client), None if other is None else async_sender(other)
    try:
        return cast("R", await _drive_async(check, first, second or first))
    except Wrong as found:
        message = str(found)
    raise AssertionError(message)


# --- what was said


def _prepare(
    method: str, path: object, effects: Callable[[], object] | None, how: How
) -> tuple[Check, object | None]:
    """The checks, and the other user's client if there is one."""
    if unknown := how.keys() - How.__annotations__.keys():
        raise TypeError(
            f"no such argument: {', '.join(sorted(unknown))}; there are effects, "
            f"{', '.join(How.__annotations__)}"
        )
    if effects is not None and not callable(effects):
        raise TypeError(
            f"effects={effects!r} must be a function that returns a number, such as lambda: len(payments)"
        )
    wire = recognised(
        guard=how.get("guard"),
        wire=how.get("wire"),
        profile=how.get("profile"),
        key_header=how.get("key_header"),
        ignore_headers=how.get("ignore_headers", ()),
    )
    method = method.upper()
    if method not in wire.wires[0].methods:
        raise ValueError(
            f"method={method!r} is not protected: expected one of {', '.join(sorted(wire.wires[0].methods))}"
        )
    said: Mapping[str, object] = {"path": path, **how}
    given = {name: said[name] for name in ("path", *BODIES, "params", "headers") if name in said}
    headers, other = _other(how)
    if headers is not None and any(name.lower() == wire.key_header.lower() for name in headers):
        raise TypeError(
            f"other has the header {wire.key_header}: it is sent the first user's key; leave it out"
        )
    plan = Plan(
        Template(method, given),
        wire,
        effects,
        _status(how.get("expect")),
        _changed(how.get("changed", True)),
        _times(how.get("concurrent", CONCURRENT)),
        _flag("omitted", how.get("omitted", False)),
        headers,
    )
    return Check(plan), other


def _other(how: How) -> tuple[Mapping[str, str] | None, object | None]:
    """The other user's headers, and client."""
    if "other" not in how:
        return None, None
    other = how["other"]
    if not isinstance(other, Mapping):
        return {}, other
    if other.keys() != {"headers"}:
        raise TypeError(f"other has {', '.join(other)}: expected headers alone, or another client")
    return checked_headers(other["headers"]), None


def _status(expect: object) -> int | None:
    if expect is not None and (not isinstance(expect, int) or not 100 <= expect <= 599):
        raise ValueError(f"expect={expect!r} is not a status: expected a number, such as 402")
    return expect


def _changed(changed: object) -> Changed | bool:
    if isinstance(changed, bool):
        return changed
    known = ", ".join(Changed.__annotations__)
    if not isinstance(changed, Mapping):
        raise TypeError(f"changed={changed!r} must be a mapping with some of {known}; or False")
    said = cast("Mapping[str, object]", changed)
    if unknown := said.keys() - Changed.__annotations__.keys():
        raise TypeError(f"changed has {', '.join(sorted(unknown))}: expected some of {known}")
    return cast("Changed", said)


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name}={value!r} must be True or False")
    return value


def _times(concurrent: object) -> int:
    if isinstance(concurrent, bool) or not isinstance(concurrent, int) or concurrent < 0 or concurrent == 1:
        raise ValueError(f"concurrent={concurrent!r} must be 2 or more, or 0 to send none at once")
    return concurrent


# --- what performs the steps


def _drive(check: Check, first: Sender, other: Sender) -> object:
    flow = check.run()
    result: object = None
    while True:
        try:
            step = flow.send(result)
        except StopIteration as done:
            return done.value
        with _noted(step):
            match step:
                case Send(request, as_other):
                    result = (other if as_other else first).send(request)
                case SendTogether(request, times):
                    result = _send_together(first, request, times)
                case Call(values, what):
                    result = _plain(values(), what)


async def _drive_async(check: Check, first: AsyncSender, other: AsyncSender) -> object:
    flow = check.run()
    result: object = None
    while True:
        try:
            step = flow.send(result)
        except StopIteration as done:
            return done.value
        with _noted(step):
            match step:
                case Send(request, as_other):
                    result = await (other if as_other else first).send(request)
                case SendTogether(request, times):
                    result = await _send_together_async(first, request, times)
                case Call(values, _):
                    result = await _awaited(values())


@contextmanager
def _noted(step: Step) -> Generator[None]:
    """Say with an exception of the application's or the client's at which step it was."""
    try:
        yield
    except Exception as error:
        error.add_note(f"assert_idempotent was {_doing(step)}")
        raise


def _doing(step: Step) -> str:
    match step:
        case Send(request):
            return f"sending {request.method} {request.target}"
        case SendTogether(request, times):
            return f"sending {request.method} {request.target} {times} times at once"
        case Call(_, what):
            return f"calling {what}"


def _send_together(client: Sender, request: Request, times: int) -> list[Reply]:
    """From as many threads, which begin at the same moment."""
    start = threading.Barrier(times)
    ended: list[Reply | BaseException] = []

    def send() -> None:
        try:
            with client.worker() as own:
                start.wait()
                reply = own.send(request)
            ended.append(reply)
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread of the test
            start.abort()
            ended.append(error)

    threads = [threading.Thread(target=send, name=f"assert_idempotent-{n}") for n in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _all_replies(ended)


async def _send_together_async(client: AsyncSender, request: Request, times: int) -> list[Reply]:
    return _all_replies(
        await asyncio.gather(*(client.send(request) for _ in range(times)), return_exceptions=True)
    )


def _all_replies(ended: Sequence[Reply | BaseException]) -> list[Reply]:
    """The replies; or the first exception, after all have ended."""
    errors = [one for one in ended if isinstance(one, BaseException)]
    # That others could not start together is a consequence.
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    return [one for one in ended if not isinstance(one, BaseException)]


def _plain(values: list[object], what: str) -> list[object]:
    found = [one for one in values if isawaitable(one)]
    for one in found:
        if iscoroutine(one):
            one.close()  # or Python warns that it was never awaited
    if found:
        raise TypeError(f"{what} is a coroutine function: use assert_idempotent_async, or a plain function")
    return values


async def _awaited(values: list[object]) -> list[object]:
    return [await cast("Awaitable[object]", one) if isawaitable(one) else one for one in values]
