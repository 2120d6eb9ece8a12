"""What is sent, in which order, and what is wrong with what came back: one flow, and no I/O.

A flow is a generator, as in `_core/protocol.py`: it yields a step and is sent what came of it, so that the
same checks and sentences serve clients that block and clients that are awaited.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, TypeVar, overload
from urllib.parse import urlsplit

from retrysafe._core import headers
from retrysafe._core.decisions import NOT_BEGUN
from retrysafe._core.problems import OF_CALLBACKS, Code
from retrysafe.testing.assertions.clients import Reply
from retrysafe.testing.assertions.recognise import Recognised
from retrysafe.testing.assertions.request import Changed, Parts, Request, Template

# --- steps


class Send(NamedTuple):
    """Send one request."""

    request: Request
    as_other: bool = False
    """By the other user's client, if there is one."""


class SendTogether(NamedTuple):
    """Send a request several times at once."""

    request: Request
    times: int


class Call(NamedTuple):
    """Call functions of the test's, and await those of their values that are to be awaited."""

    values: Callable[[], list[object]]
    what: str


Step = Send | SendTogether | Call
T = TypeVar("T")
Flow = Generator[Step, Any, T]


@overload
def _ask(step: Send) -> Flow[Reply]: ...
@overload
def _ask(step: SendTogether) -> Flow[list[Reply]]: ...
@overload
def _ask(step: Call) -> Flow[list[object]]: ...
def _ask(step: Step) -> Flow[object]:
    return (yield step)


class Wrong(Exception):
    """What is wrong, in a sentence, and below it what was sent and received."""


class Plan(NamedTuple):
    """What is to be checked."""

    template: Template
    wire: Recognised
    effects: Callable[[], object] | None
    expect: int | None
    changed: Changed | bool
    concurrent: int
    omitted: bool
    other: Mapping[str, str] | None
    """Headers of the other user; `None`: there is no other."""


# --- the flow

_FUNCTIONS = (
    "if the application refuses the same data twice, pass functions, such as json=lambda: {...}: they are "
    "called once for each key"
)


class Check:
    """One call of `assert_idempotent`."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._wire = plan.wire
        self._effects = 0
        """As counted last."""
        self._per_run = 0
        """How many one run of the handler adds."""

    def run(self) -> Flow[object]:
        """All steps.  Returns the first response, as the client received it."""
        self._effects = yield from self._count()
        parts = yield from self._parts()
        request = self._encode(parts)
        changed = self._changed(parts, request)
        first = yield from self._first(request)
        yield from self._repeat("the repeated request", request, first)
        if changed is not None:
            yield from self._change(changed, request, first)
        yield from self._fresh()
        if self._plan.concurrent:
            yield from self._concurrent()
        if self._plan.other is not None:
            yield from self._other(self._plan.other, request, first)
        return first.native

    def _parts(self) -> Flow[Parts]:
        """Another request, for another key."""
        template = self._plan.template
        values = yield from _ask(Call(template.values, "a function of the request"))
        return template.parts(values)

    def _encode(self, parts: Parts) -> Request:
        if any(name.lower() == self._wire.key_header.lower() for name in parts.headers):
            raise TypeError(
                f"headers has {self._wire.key_header}: keys are made here, one for each step; leave it out"
            )
        return parts.encode(self._wire.key_header, self._wire.new_key())

    # --- first, again

    def _first(self, request: Request) -> Flow[Reply]:
        reply = yield from _ask(Send(request))
        self._refuse_unexpected("the first request", request, reply)
        if self._wire.is_replay(reply):
            raise wrong(
                f"the first request was marked as a replay ({self._wire.marker}), although its key was never "
                "sent before: is every response marked, or is the key ignored?",
                request,
                reply,
            )
        if self._wire.is_unstored(reply):
            raise wrong(
                f"the response to the first request could not be stored ({self._wire.unstored}): is the "
                "store reachable? The log of the application says why",
                request,
                reply,
            )
        before = self._effects
        self._effects = yield from self._count()
        self._per_run = self._effects - before
        if self._plan.effects is not None and self._per_run < 1:
            raise wrong(
                f"effects does not count what the first request did: it returned {before} before and "
                f"{self._effects} after it, expected more; count what the handler does, such as the rows "
                "that it inserts, by a connection that sees what was committed since",
                request,
                reply,
            )
        return reply

    def _repeat(self, name: str, request: Request, first: Reply, *, as_other: bool = False) -> Flow[None]:
        """Send it again: a replay of `first`, and no effect."""
        reply = yield from _ask(Send(request, as_other))
        before = self._effects
        self._effects = yield from self._count()
        if self._effects != before:
            if (released := _released(first)) is not None:
                raise wrong(f"{name} ran again, as it must: {released}", request, reply, first=first)
            raise wrong(
                f"{name} ran again: effects went from {before} to {self._effects}; {_unprotected(first)}",
                request,
                reply,
                first=first,
            )
        self._compare(name, request, reply, first)

    def _compare(self, name: str, request: Request, reply: Reply, first: Reply) -> None:
        """Refuse what is not a replay of `first`, byte for byte."""
        tombstone = self._wire.is_tombstone(reply)
        expected = self._wire.replayed_statuses(first) if tombstone else {first.status}
        replayed = self._wire.is_replay(reply)
        if not replayed and (released := _released(first)) is not None:
            raise wrong(f"{name} was not replayed: {released}", request, reply, first=first)
        if reply.status not in expected:
            raise wrong(
                f"{name} got {reply.status}, expected the first response again, {first.status}"
                + _because(self._advice(reply)),
                request,
                reply,
                first=first,
            )
        if not replayed:
            raise wrong(self._unmarked(name, reply, first), request, reply, first=first)
        if tombstone != self._plan.omitted:
            raise wrong(self._tombstone(name, tombstone), request, reply, first=first)
        if tombstone and reply.body:
            raise wrong(
                f"{name} got a replay that says {self._wire.tombstone}, and a body of {len(reply.body)} "
                "bytes; does a layer in front of retrysafe add it?",
                request,
                reply,
                first=first,
            )
        if not tombstone and reply.body != first.body:
            at = next(
                (at for at, (a, b) in enumerate(zip(reply.body, first.body, strict=False)) if a != b),
                min(len(reply.body), len(first.body)),
            )
            raise wrong(
                f"{name} got a replay with another body than the first response: it has {len(reply.body)} "
                f"bytes and differs from byte {at} on, expected the same {len(first.body)} bytes; does a "
                "layer in front of retrysafe change it?",
                request,
                reply,
                first=first,
            )
        self._compare_headers(name, request, reply, first)

    def _compare_headers(self, name: str, request: Request, reply: Reply, first: Reply) -> None:
        whole = not self._plan.omitted
        stored = self._wire.stored_headers(first, about_the_body=whole)
        found = self._wire.stored_headers(reply, about_the_body=whole)
        for header in [*stored, *found]:
            if stored.get(header) != found.get(header):
                raise wrong(
                    f"{name} got a replay with another header {header} than the first response: "
                    f"{_values(found.get(header))}, expected {_values(stored.get(header))}; if a layer in "
                    f'front of retrysafe adds it to each response, pass ignore_headers=("{header}",)',
                    request,
                    reply,
                    first=first,
                )

    def _unmarked(self, name: str, reply: Reply, first: Reply) -> str:
        if reply.body == first.body:
            return (
                f"{name} got the first response, but it is not marked as a replay: expected "
                f"{self._wire.marker}; if the API marks replays by another header, pass guard=, profile= or "
                f"wire=, and otherwise: {_unprotected(first)}"
            )
        return (
            f"{name} got another response than the first one, not marked as a replay ({self._wire.marker}), "
            f"so it probably ran again; {_unprotected(first)}"
        )

    def _tombstone(self, name: str, omitted: bool) -> str:
        if omitted:
            return (
                f"{name} got a replay without its body ({self._wire.tombstone}): it is larger than "
                "max_response, a stream, or the route has no_store=True; if that is meant, pass omitted=True"
            )
        return f"{name} got a replay with its body, expected one without it, because omitted=True was passed"

    # --- another body

    def _changed(self, parts: Parts, request: Request) -> Request | None:
        """Another request with the same key."""
        if self._plan.changed is False:
            return None
        changed = parts.changed(self._plan.changed).encode(request.key_header, request.key)
        if changed.same_as(request):
            raise ValueError(f"changed={self._plan.changed!r} is the same request: give it another body")
        return changed

    def _change(self, changed: Request, request: Request, first: Reply) -> Flow[None]:
        """Another body with the same key: refused, without an effect, and the first response stays."""
        reply = yield from _ask(Send(changed))
        before = self._effects
        self._effects = yield from self._count()
        status = self._wire.status("key-reused")
        if self._effects != before:
            raise wrong(
                f"another body with the same key ran: effects went from {before} to {self._effects}, "
                f"expected a refusal, {status} key-reused; are bodies compared (fingerprint=)?",
                changed,
                reply,
                first=first,
            )
        if self._wire.problem(reply) == "key-reused":
            yield from self._repeat("the first request, repeated after another body,", request, first)
            return
        if self._wire.is_replay(reply):
            raise wrong(
                "another body with the same key got the first one's response, expected a refusal, "
                f"{status} key-reused; if the route compares no bodies (fingerprint=None), pass "
                "changed=False, and if it compares chosen fields, pass changed={...} with another value in "
                "one of them",
                changed,
                reply,
                first=first,
            )
        if _succeeded(reply):
            raise wrong(
                f"another body with the same key got {reply.status}, expected a refusal, {status} "
                "key-reused; are bodies compared (fingerprint=)?",
                changed,
                reply,
                first=first,
            )
        raise wrong(
            f"another body with the same key was refused with {reply.status}, but not as a reused key, "
            f"expected {status} key-reused; if the application refuses this body by itself, pass "
            "changed={...} with one that it accepts",
            changed,
            reply,
            first=first,
        )

    # --- other keys

    def _fresh(self) -> Flow[None]:
        """The same with a fresh key: it runs."""
        name = "the same request with a fresh key"
        request = self._encode((yield from self._parts()))
        reply = yield from _ask(Send(request))
        self._refuse_unexpected(name, request, reply, _FUNCTIONS)
        if self._wire.is_replay(reply):
            raise wrong(
                f"{name} got a replay, expected a run of its own; is the key part of what is looked up?",
                request,
                reply,
            )
        yield from self._expect_run(name, request, reply)

    def _concurrent(self) -> Flow[None]:
        """Duplicates at once, with a fresh key: one runs, the others wait for it or are refused."""
        times = self._plan.concurrent
        name = f"{times} concurrent requests with one key"
        request = self._encode((yield from self._parts()))
        replies = yield from _ask(SendTogether(request, times))
        before = self._effects
        self._effects = yield from self._count()
        if (added := self._effects - before) > self._per_run:
            raise wrong(
                f"of {name} more than one ran: effects went from {before} to {self._effects}, expected "
                f"{before + self._per_run}; is the key reserved before the handler runs?",
                request,
                *replies,
            )
        definitive = [reply for reply in replies if not self._wire.is_in_flight(reply)]
        if not definitive:
            raise wrong(
                f"of {name} none ran: all were refused as in flight, expected one response; does another "
                "request hold the key?",
                request,
                *replies,
            )
        for reply in definitive:
            if self._wire.problem(reply) == "in-flight" or (
                reply.status == self._wire.status("in-flight") and self._plan.expect != reply.status
            ):
                raise wrong(
                    f"of {name} one was refused with {reply.status} without Retry-After, expected the "
                    "response of the one that ran, or a refusal that says when to come back",
                    request,
                    reply,
                )
            self._refuse_unexpected(f"of {name} one", request, reply, _FUNCTIONS)
        ran = [reply for reply in definitive if not self._wire.is_replay(reply)]
        if len(ran) > 1:
            raise wrong(
                f"of {name} {len(ran)} got a response that is not marked as a replay, expected one; is the "
                "key reserved before the handler runs?",
                request,
                *ran,
            )
        if not ran:
            raise wrong(
                f"of {name} none ran: all got replays, although the key was never sent before; is the key "
                "part of what is looked up?",
                request,
                *replies,
            )
        if added != self._per_run:
            raise wrong(
                f"of {name} none had the effect: effects went from {before} to {self._effects}, expected "
                f"{before + self._per_run}",
                request,
                *replies,
            )
        for reply in definitive:
            if reply is not ran[0]:
                self._compare(f"of {name} one", request, reply, ran[0])
        yield from self._repeat("the concurrent request, repeated afterwards,", request, ran[0])

    def _other(self, mine: Mapping[str, str], request: Request, first: Reply) -> Flow[None]:
        """Another user with the same key: a run of their own, and each gets their own response again."""
        name = "the other user's request with the first user's key"
        theirs = request.with_headers(mine)
        reply = yield from _ask(Send(theirs, as_other=True))
        if self._wire.is_replay(reply):
            raise wrong(
                f"{name} got the first user's response, expected a run of its own; does scope= tell these "
                "two users apart?",
                theirs,
                reply,
                first=first,
            )
        if (code := self._wire.problem(reply)) in ("key-reused", "in-flight", "outcome-unknown"):
            raise wrong(
                f"{name} was refused with {reply.status} {code}, expected a run of its own; does scope= tell "
                "these two users apart?",
                theirs,
                reply,
                first=first,
            )
        self._refuse_unexpected(
            name, theirs, reply, "pass other= with the credentials of a user who may do it"
        )
        yield from self._expect_run(name, theirs, reply)
        yield from self._repeat("the other user's request, repeated,", theirs, reply, as_other=True)
        yield from self._repeat("the first user's request, repeated after the other's,", request, first)

    # --- what several steps ask

    def _count(self) -> Flow[int]:
        effects = self._plan.effects
        if effects is None:
            return 0
        [found] = yield from _ask(Call(lambda: [effects()], "effects"))
        if isinstance(found, bool) or not isinstance(found, int):
            raise TypeError(f"effects returned {found!r}: expected a whole number, such as len(payments)")
        return found

    def _expect_run(self, name: str, request: Request, reply: Reply) -> Flow[None]:
        before = self._effects
        self._effects = yield from self._count()
        if self._effects - before != self._per_run:
            raise wrong(
                f"{name} did not have the effect of one run: effects went from {before} to {self._effects}, "
                f"expected {before + self._per_run}",
                request,
                reply,
            )

    def _refuse_unexpected(self, name: str, request: Request, reply: Reply, hint: str = "") -> None:
        """Refuse a response that is neither the expected one nor, where none is named, a success."""
        expected = self._plan.expect
        if slash := _slash_added(request, reply):
            raise wrong(
                f"{name} was redirected with {reply.status} to {slash}, expected a response of the route; "
                "pass this path",
                request,
                reply,
            )
        if reply.status == expected if expected is not None else _succeeded(reply):
            return
        if expected is not None:
            said = f"{name} got {reply.status}, expected {expected}, because expect={expected} was passed"
        else:
            verb = "failed" if reply.status >= 500 else "was refused"
            said = f"{name} {verb} with {reply.status}, expected a success (2xx or 3xx)"
        raise wrong(said + _because(self._advice(reply, hint)), request, reply)

    def _advice(self, reply: Reply, hint: str = "") -> str:
        """What to do about a refusal."""
        code = self._wire.problem(reply)
        if code is not None:
            return _BY_CODE[code].format(key=self._wire.key_header)
        if reply.status in _BY_STATUS:
            return _BY_STATUS[reply.status]
        if hint:
            return hint
        return (
            f"if this is the response to be tested, pass expect={reply.status}" if reply.status >= 400 else ""
        )


# --- sentences

_BY_CODE: dict[Code, str] = {
    "key-missing": "the key was sent as {key}: if the API reads another header, pass guard=, profile= or "
    "key_header=",
    "key-invalid": "pass guard=, profile= or wire=, so that keys have the form that it asks for",
    "principal-required": "its scope= found no owner of the key: pass headers= that identify the user",
    "replay-forbidden": "its reauthorise= does not let this user see the stored response",
    "body-too-large": "send a smaller body, or raise max_request",
    "in-flight": "the key is still held, although the first response was received: is its outcome stored?",
    "outcome-unknown": "the outcome of the first request was not stored: the log of the application says why",
    "previously-failed": 'the first request failed, and with failed="conflict" a failure is not replayed',
    "key-reused": "it is not taken for the same request: does a layer in front of retrysafe change it, or "
    "does fingerprint= compare what changes each time?",
    "handler-failed": "the handler raised: the log of the application has the exception; if failures are "
    "to be tested, pass expect=500",
    "not-done": "the handler raised NotDone, or one of retry_on, so that the key was released, and there is "
    "no response to replay",
    "store-unavailable": "the store could not be used: the log of the application says why",
    "store-reset": "the store is not armed: run `retrysafe arm`, or open it with ?create=1",
    "draining": "the guard was drained, as it is when a server stops: call guard.resume()",
    **dict.fromkeys(
        OF_CALLBACKS,
        "the route takes callbacks, which have an id of their own and no {key}: "
        "deliver an event twice, and compare the effects",
    ),
}
_SIGN_IN = "pass headers= (or a client) that the application accepts"
_BY_STATUS = {
    401: _SIGN_IN,
    403: _SIGN_IN,
    404: "is the path right?",
    405: "is the method right?",
    429: "a rate limit refused it: lift it for this test",
}


def _released(reply: Reply) -> str | None:
    """Why the key of a request with this response is free again, if it is."""
    waits = headers.find(reply.headers, b"retry-after") is not None
    if reply.status in NOT_BEGUN or (reply.status == 503 and waits):
        what = "503 with Retry-After" if reply.status == 503 else str(reply.status)
        return (
            f"{what} says that nothing was done, so it is never stored, and the next request with the key "
            "runs; test a response that is stored"
        )
    return None


def _unprotected(first: Reply) -> str:
    """What may be the reason for a request that runs again."""
    asked = "is the route decorated with @idempotent, or is the middleware installed?"
    if first.status < 500:
        return asked
    return (
        'with effects="repeatable", effects="database" or failed="retry" a failure is not replayed, and the '
        f"next request with the key runs; otherwise: {asked}"
    )


def _succeeded(reply: Reply) -> bool:
    return 200 <= reply.status < 400


def _slash_added(request: Request, reply: Reply) -> str | None:
    """Where a framework redirects to that wants a slash more or less; that leaves the key free."""
    location = headers.find(reply.headers, b"location")
    if reply.status not in (301, 307, 308) or location is None:
        return None
    asked, given = urlsplit(request.target).path, urlsplit(location.decode("latin-1")).path
    return given if asked != given and asked.rstrip("/") == given.rstrip("/") else None


def _because(advice: str) -> str:
    return f"; {advice}" if advice else ""


def _values(values: list[str] | None) -> str:
    return "none" if values is None else ", ".join(map(repr, values))


_SHOWN = 200
"""Characters of a body that a message has: enough for a problem's code and an exception's name."""


def _start(body: bytes) -> str:
    text = body[: 4 * _SHOWN].decode("utf-8", "backslashreplace")
    return f"{text[:_SHOWN]}…" if len(text) > _SHOWN else text


def wrong(sentence: str, request: Request, *replies: Reply, first: Reply | None = None) -> Wrong:
    """The sentence; below it what was sent, without credentials, and what was received, now and first."""
    sent = f"{request.method} {request.target}, {request.key_header}: {request.key}"
    lines = [sentence, f"  sent: {sent}" + (f", {_start(request.body)}" if request.body else "")]
    lines += [f"  received: {reply.status} {_start(reply.body)}".rstrip() for reply in replies]
    if first is not None:
        lines.append(f"  first: {first.status} {_start(first.body)}".rstrip())
    return Wrong("\n".join(lines))
