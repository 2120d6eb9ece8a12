"""A small protection that is right, and one subclass for each way to get it wrong.

It is not retrysafe's: what `assert_idempotent` finds must not depend on what the library would never do.
"""

import json
import threading
from typing import NamedTuple

from werkzeug import Request, Response
from werkzeug.test import Client

TOGETHER = 5
"""As many duplicates as are sent at once by default."""
PATIENCE = 30.0


class Record(NamedTuple):
    body: bytes
    response: Response | None
    """`None` while the handler runs."""


class Shop:
    """Right.  Its handler is in flight until all duplicates of the concurrent step were refused."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.records: dict[tuple[str, ...], Record] = {}
        self.lock = threading.Lock()
        self.refused = threading.Semaphore(0)
        self.keys: list[str] = []

    @property
    def client(self) -> Client:
        return Client(Request.application(self.respond))

    def is_third(self, request: Request) -> bool:
        """Whether this is the concurrent step, whose key is the third: after a first and a fresh one."""
        key = request.headers["Idempotency-Key"]
        with self.lock:
            if key not in self.keys:
                self.keys.append(key)
            return self.keys.index(key) == 2

    def respond(self, request: Request) -> Response:
        identity, body = self.identity(request), request.get_data()
        third = self.is_third(request)
        with self.lock:
            record = self.records.get(identity)
            if record is None:
                self.records[identity] = Record(body, None)
        if record is None:
            response = self.handle(request)
            if third:
                for _ in range(TOGETHER - 1):
                    assert self.refused.acquire(timeout=PATIENCE)
            return self.store(identity, body, response)
        if record.body != body:
            return self.mismatch(identity)
        if record.response is None:
            self.refused.release()
            return self.in_flight()
        return self.replay(record.response)

    def identity(self, request: Request) -> tuple[str, ...]:
        return request.headers.get("X-User", ""), request.headers["Idempotency-Key"]

    def handle(self, request: Request) -> Response:
        self.runs.append(request.headers.get("X-User", ""))
        body = json.dumps({"number": len(self.runs)})
        return Response(body, 201, {"X-Number": str(len(self.runs))}, content_type="application/json")

    def store(self, identity: tuple[str, ...], body: bytes, response: Response) -> Response:
        self.records[identity] = Record(body, response)
        return response

    def mismatch(self, identity: tuple[str, ...]) -> Response:
        return problem(422, "key-reused")

    def in_flight(self) -> Response:
        return problem(409, "in-flight", {"Retry-After": "1"})

    def replay(self, stored: Response) -> Response:
        replay = copied(stored)
        replay.headers["Idempotent-Replayed"] = "true"
        return replay


def copied(response: Response) -> Response:
    return Response(response.get_data(), response.status_code, response.headers.copy())


def problem(status: int, code: str, headers: dict[str, str] | None = None) -> Response:
    body = json.dumps({"type": f"http://shop.test/idempotency#{code}", "code": code})
    return Response(body, status, headers or {}, content_type="application/problem+json")


# --- wrong


class Unprotected(Shop):
    """Every request runs."""

    def respond(self, request: Request) -> Response:
        return self.handle(request)


class Constant(Unprotected):
    """The same, and no response says so."""

    def handle(self, request: Request) -> Response:
        self.runs.append("")
        return Response("paid", 201)


class StoresNothing(Shop):
    """It knows which keys are in flight, and forgets them with the response."""

    def store(self, identity: tuple[str, ...], body: bytes, response: Response) -> Response:
        del self.records[identity]
        return response


class ReplaysAnyBody(Shop):
    """It compares no bodies."""

    def mismatch(self, identity: tuple[str, ...]) -> Response:
        stored = self.records[identity].response
        assert stored is not None
        return self.replay(stored)


class RunsAnotherBody(Shop):
    """Another body is another request to it, and overwrites the first."""

    def respond(self, request: Request) -> Response:
        record = self.records.get(self.identity(request))
        if record is not None and record.body != request.get_data():
            del self.records[self.identity(request)]
        return super().respond(request)


class ForgetsWhenMismatched(Shop):
    """It refuses another body, and then the first one's response is gone."""

    def mismatch(self, identity: tuple[str, ...]) -> Response:
        del self.records[identity]
        return super().mismatch(identity)


class RefusesAnotherBodyItself(Shop):
    """Its validation refuses the body, and nothing about keys was asked."""

    def mismatch(self, identity: tuple[str, ...]) -> Response:
        return Response('{"detail": "amount must be 5"}', 422, content_type="application/json")


class RunsDuplicates(Shop):
    """It looks for a record, and reserves nothing: all duplicates find none, and run."""

    def __init__(self) -> None:
        super().__init__()
        self.all_looked = threading.Barrier(TOGETHER, timeout=PATIENCE)

    def respond(self, request: Request) -> Response:
        identity, body = self.identity(request), request.get_data()
        record = self.records.get(identity)
        if self.is_third(request):
            self.all_looked.wait()
        if record is None or record.response is None:
            return self.store(identity, body, self.handle(request))
        return self.replay(record.response) if record.body == body else self.mismatch(identity)


class RefusesWithoutTime(Shop):
    """It does not say when to come back."""

    def in_flight(self) -> Response:
        return problem(409, "in-flight")


class ChangesBody(Shop):
    def replay(self, stored: Response) -> Response:
        replay = super().replay(stored)
        replay.set_data(stored.get_data().replace(b'": ', b'":'))
        return replay


class ChangesHeader(Shop):
    def replay(self, stored: Response) -> Response:
        replay = super().replay(stored)
        replay.headers["X-Number"] = "another"
        return replay


class LosesHeader(Shop):
    def replay(self, stored: Response) -> Response:
        replay = super().replay(stored)
        del replay.headers["X-Number"]
        return replay


class AddsHeader(Shop):
    def replay(self, stored: Response) -> Response:
        replay = super().replay(stored)
        replay.headers["X-Cache"] = "hit"
        return replay


class ChangesStatus(Shop):
    def replay(self, stored: Response) -> Response:
        replay = super().replay(stored)
        replay.status_code = 200
        return replay


class ForgetsMarker(Shop):
    def replay(self, stored: Response) -> Response:
        return copied(stored)


class MarksEverything(Shop):
    def handle(self, request: Request) -> Response:
        return self.replay(super().handle(request))


class NeverEnds(Shop):
    """Its keys stay in flight."""

    def store(self, identity: tuple[str, ...], body: bytes, response: Response) -> Response:
        return response


class SharesKeys(Shop):
    """A key of one user is the key of all."""

    def identity(self, request: Request) -> tuple[str, ...]:
        return (request.headers["Idempotency-Key"],)


class RefusesOtherUser(SharesKeys):
    """Keys are shared, and the user is part of what is compared."""

    def respond(self, request: Request) -> Response:
        if request.headers.get("X-User") == "bob":
            return self.mismatch(())
        return super().respond(request)


class IgnoresKey(Shop):
    """One request of a user is like another to it."""

    def identity(self, request: Request) -> tuple[str, ...]:
        return (request.headers.get("X-User", ""),)


class HoldsThirdKey(Shop):
    """A key that was never sent is in flight."""

    def respond(self, request: Request) -> Response:
        return self.in_flight() if self.is_third(request) else super().respond(request)


class ReplaysThirdKey(Shop):
    """A key that was never sent has a response."""

    def respond(self, request: Request) -> Response:
        return self.replay(Response("paid", 201)) if self.is_third(request) else super().respond(request)


class WorksTwice(Shop):
    """After two runs its handler has no effect any more."""

    def handle(self, request: Request) -> Response:
        response = super().handle(request)
        del self.runs[2:]
        return response


class WorksOnce(Shop):
    """After the first run its handler has no effect any more."""

    def handle(self, request: Request) -> Response:
        response = super().handle(request)
        del self.runs[1:]
        return response


class CannotStore(Shop):
    """It says so."""

    def handle(self, request: Request) -> Response:
        response = super().handle(request)
        response.headers["Idempotency-Stored"] = "false"
        return response


class FilledTombstone(Shop):
    """Its replays say that they have no body."""

    def replay(self, stored: Response) -> Response:
        replay = super().replay(stored)
        replay.headers["Idempotency-Body"] = "omitted"
        return replay
