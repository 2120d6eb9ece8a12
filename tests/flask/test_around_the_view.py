"""What stands between the view and the client, and what a view is given: bodies, streams, sessions, files."""

import asyncio
import contextvars
import errno
import io
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from flask import Response, g, request, send_file, session, stream_with_context
from gunicorn.http.body import Body, ChunkedReader  # type: ignore[import-untyped]  # it has no types
from gunicorn.http.unreader import IterUnreader  # type: ignore[import-untyped]  # the same
from werkzeug.exceptions import ClientDisconnected
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.test import Client

from retrysafe import NotDone, current
from retrysafe.flask import idempotent
from tests.flask.shop import KEY, Shop, code, order, replayed, send

MIB = 1024 * 1024


def test_headers_of_after_request_are_not_doubled() -> None:
    """They are fresh on a replay, and there once."""
    shop = Shop()
    served: list[int] = []

    @shop.app.after_request
    def after(response: Response) -> Response:
        served.append(1)
        response.headers.add("Link", "</orders>")
        response.headers["X-Served"] = str(len(served))
        return response

    first, second = order(shop.client), order(shop.client)
    assert [first.headers.getlist("Link"), second.headers.getlist("Link")] == [["</orders>"]] * 2
    assert [first.headers["X-Served"], second.headers["X-Served"]] == ["1", "2"]
    assert (replayed(second), second.headers.getlist("Content-Length")) == (True, [str(len(second.data))])


def test_an_after_request_that_changes_the_body() -> None:
    """It has changed what is stored already: the retry gets the same bytes, and not those changed twice."""
    shop = Shop()

    @shop.app.after_request
    def envelope(response: Response) -> Response:
        response.set_data(b"[" + response.get_data() + b"]")
        return response

    first, second = order(shop.client), order(shop.client)
    assert (second.data, replayed(second)) == (first.data, True)
    assert first.data.count(b"[") == 1


def test_headers_about_a_body_that_was_changed() -> None:
    """What `after_request` says of a body that is not sent is not sent either."""
    shop = Shop()

    @shop.app.after_request
    def envelope(response: Response) -> Response:
        response.set_data(b"[" + response.get_data() + b"]")
        response.headers["Content-Digest"] = str(len(response.get_data()))
        response.headers["Server-Time"] = str(len(shop.runs))
        response.add_etag(overwrite=True)
        return response

    first, second, problem = order(shop.client), order(shop.client), order(shop.client, amount=2)
    assert (second.data, second.headers["Content-Digest"]) == (first.data, str(len(first.data)))
    assert (second.headers["ETag"], replayed(second)) == (first.headers["ETag"], True)
    assert (code(problem), problem.content_type) == ("key-reused", "application/problem+json")
    assert ("Content-Digest" in problem.headers, problem.headers["Server-Time"]) == (False, "1")


def test_an_after_request_that_makes_another_response() -> None:
    """What marks a replay does not depend on what the application leaves of it."""
    shop = Shop()
    shop.app.after_request(lambda response: Response(b"<" + response.get_data() + b">", response.status_code))
    first, second = order(shop.client), order(shop.client)
    assert (second.status_code, second.data, replayed(second)) == (201, first.data, True)
    assert second.headers["Original-Request-Id"] == first.headers["X-Request-Id"]
    assert second.headers["X-Request-Id"] not in ("", first.headers["X-Request-Id"])
    assert order(shop.client, amount=2).headers["X-Should-Retry"] == "false"


def test_sessions_are_fresh() -> None:
    """The cookie of the first client is not stored; the retry has its own."""
    shop = Shop()

    def visit() -> str:
        session["visits"] = session.get("visits", 0) + 1
        return "paid"

    shop.post("/pay", visit)
    client, other = shop.client, shop.client
    assert "session=" in send(client, "/pay").headers["Set-Cookie"]
    replay = send(other, "/pay")
    assert (replayed(replay), "Set-Cookie" in replay.headers) == (True, False)


def test_what_a_view_sees() -> None:
    """The body, whoever read it before; our request id; no way to send a file past us."""
    shop = Shop()
    shop.app.before_request(lambda: g.__setattr__("read", request.get_data()))

    def look() -> dict[str, Any]:
        return {
            "body": request.get_data(as_text=True),
            "before": g.read.decode(),
            "same id": request.headers["X-Request-Id"] == current().request_id,
            "encoding": request.headers.get("Accept-Encoding"),
        }

    shop.post("/look", look)
    seen = send(shop.client, "/look", data="a body", headers={"Accept-Encoding": "gzip"}).get_json()
    assert seen == {"body": "a body", "before": "a body", "same id": True, "encoding": None}


@pytest.mark.parametrize("before", [0, 10, 3 * MIB])
def test_a_large_upload(before: int) -> None:
    """It goes to disk; what was read of it before the claim and after it are one body."""
    shop = Shop()
    whole = bytes(range(256)) * (4 * MIB // 256)
    shop.app.before_request(lambda: g.__setattr__("begun", request.stream.read(before) if before else b""))

    def upload() -> str:
        read = g.begun + request.stream.read()
        shop.runs.append(read == whole)
        return str(len(read))

    shop.post("/upload", upload)
    assert [send(shop.client, "/upload", data=whole).text for _ in range(2)] == [str(4 * MIB)] * 2
    assert shop.runs == [True]
    other = send(shop.client, "/upload", data=whole[:-1] + b"!")
    assert code(other) == "key-reused"


def test_a_form_with_a_file() -> None:
    """Parsed before the claim or after it: a multipart body is compared by its parts."""
    shop = Shop()
    shop.app.before_request(lambda: g.__setattr__("token", request.form["token"]))
    shop.post("/form", lambda: str(len(request.files["file"].read())))

    def post(content: bytes) -> Any:
        return send(shop.client, "/form", data={"token": "t", "file": (io.BytesIO(content), "name.bin")})

    first, second = post(b"x" * 99_000), post(b"x" * 99_000)  # with another boundary each
    assert (first.text, second.text, replayed(second)) == ("99000", "99000", True)
    assert code(post(b"y" * 99_000)) == "key-reused"


@pytest.mark.parametrize("reads_first", [True, False])
@pytest.mark.parametrize("announced", [True, False])
def test_a_body_beyond_the_limit(reads_first: bool, announced: bool) -> None:
    """413 before any claim, whether its length was announced or not, and whoever reads it."""
    shop = Shop()
    if reads_first:
        shop.app.before_request(lambda: g.__setattr__("read", request.get_data()))
    shop.post("/small", shop.pay, max_request=1000)
    rest: dict[str, Any] = (
        {} if announced else {"content_length": "", "environ_overrides": {"wsgi.input_terminated": True}}
    )
    refused = send(shop.client, "/small", data=b"x" * 1001, **rest)
    assert (refused.status_code, code(refused), shop.runs, shop.records()) == (413, "body-too-large", [], 0)
    assert send(shop.client, "/small", data=b"x" * 1000, **rest).text == "paid"


def test_a_body_that_no_route_takes() -> None:
    """What is not protected gets all of it, though no guard would copy so much."""
    shop = Shop()
    shop.guard.largest_request = 1000
    shop.app.post("/open")(lambda: str(len(request.get_data())))
    assert send(shop.client, "/open", data=b"x" * 100_000).text == "100000"


@pytest.mark.parametrize("reads_first", [True, False])
def test_a_body_for_which_there_is_no_room(reads_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk costs the copy, and not the request: what is protected gets 503, the rest its body."""
    shop = Shop()
    if reads_first:
        shop.app.before_request(lambda: g.__setattr__("read", request.get_data()))
    shop.post("/pay", shop.pay)
    shop.app.post("/open")(lambda: str(len(request.get_data())))

    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    assert send(shop.client, "/open", data=b"x" * 3 * MIB).text == str(3 * MIB)
    refused = send(shop.client, "/pay", data=b"x" * 3 * MIB)
    assert (refused.status_code, code(refused), shop.runs) == (503, "store-unavailable", [])


def test_a_route_that_takes_more_than_the_guard() -> None:
    """All of its body is compared, though it is read before it is known which route it is."""
    shop = Shop()
    shop.guard.compile({"max_request": 10})
    shop.app.before_request(lambda: g.__setattr__("read", request.get_data()))
    shop.post("/notes", lambda: str(len(request.get_data())), max_request=1000)
    first, same, other = (send(shop.client, "/notes", data=text * 100) for text in "aab")
    assert (first.text, same.text, code(other)) == ("100", "100", "key-reused")


@pytest.mark.parametrize("reads_first", [True, False])
def test_a_client_that_disconnects_in_its_body(reads_first: bool) -> None:
    """Nothing is claimed of a body that is not complete; Flask tells those that read it, as ever."""
    shop = Shop()
    seen: list[type[BaseException] | None] = []

    @shop.app.before_request
    def read() -> None:
        if reads_first:
            request.get_data()

    @shop.app.teardown_request
    def teardown(error: BaseException | None) -> None:
        seen.append(type(error) if error else None)

    shop.app.config["TRAP_HTTP_EXCEPTIONS"] = True
    shop.post("/pay", shop.pay)
    half = {"wsgi.input": io.BytesIO(b"half"), "CONTENT_LENGTH": "8"}
    response = send(shop.client, "/pay", environ_overrides=half)
    assert (response.status_code, shop.runs, shop.records()) == (500 if reads_first else 400, [], 0)
    assert seen == [ClientDisconnected if reads_first else None]


def test_a_broken_body_whose_error_was_swallowed() -> None:
    """gunicorn's reader says once that a chunked body broke off, and gives what there is when asked again."""
    shop = Shop()

    @shop.app.before_request
    def read() -> None:
        with suppress(OSError):
            request.get_data()

    shop.post("/pay", shop.pay)
    head: Any = None  # not looked at before the trailers
    broken = Body(ChunkedReader(head, IterUnreader(iter([b"4\r\nhalf\r\n4\r\nof"]))))
    environ = {"wsgi.input": broken, "wsgi.input_terminated": True, "CONTENT_LENGTH": ""}
    response = send(shop.client, "/pay", environ_overrides=environ)
    assert (response.status_code, shop.runs, shop.records()) == (400, [], 0)


def test_streams() -> None:
    """Held up to the limit and replayed; beyond it they flow, and leave a tombstone."""
    shop = Shop()

    def stream(count: int) -> Response:
        def pieces() -> Iterator[bytes]:
            shop.runs.append(request.path)
            for _ in range(count):
                yield b"x" * 1000

        return Response(stream_with_context(pieces()))

    shop.post("/stream/<int:count>", stream, max_response=10_000)
    for count, omitted in ((5, None), (50, "omitted")):
        first, second = (send(shop.client, f"/stream/{count}", key=f"{KEY}{count}") for _ in range(2))
        assert (len(first.data), replayed(second)) == (count * 1000, True)
        assert second.data == (b"" if omitted else first.data)
        assert second.headers.get("Idempotency-Body") == omitted
    assert shop.runs == ["/stream/5", "/stream/50"]


def test_a_view_that_is_a_generator() -> None:
    """Its parts are made when the response is read, which is before it is stored."""
    shop = Shop()

    def parts() -> Iterator[str]:
        shop.runs.append(current().number)
        yield "one "
        yield "two"

    shop.post("/parts", parts)
    assert [send(shop.client, "/parts").text for _ in range(2)] == ["one two"] * 2
    assert shop.runs == [1]


def test_a_file(tmp_path: Path) -> None:
    """`send_file` hands a file to the server: it is read and stored as any response."""
    shop = Shop()
    path = tmp_path / "report.bin"
    path.write_bytes(bytes(range(256)))
    shop.post("/report", lambda: send_file(path, download_name="report.bin"))
    first = send(shop.client, "/report")
    path.write_bytes(b"another")
    second = send(shop.client, "/report")
    assert (first.data, second.data, replayed(second)) == (bytes(range(256)),) * 2 + (True,)
    assert second.headers["Content-Disposition"] == first.headers["Content-Disposition"]


def test_an_asynchronous_view() -> None:
    """In an event loop of its own, as Flask runs it."""
    shop = Shop()

    async def pay() -> str:
        await asyncio.sleep(0)
        shop.runs.append(current().number)
        return "paid"

    shop.post("/pay", pay)
    assert [send(shop.client, "/pay").text for _ in range(2)] == ["paid"] * 2
    assert shop.runs == [1]


def test_below_an_asynchronous_decorator() -> None:
    """What awaits the view gets something to await: a run, a replay, a refusal, or an exception."""
    shop = Shop()

    def logged(view: Any) -> Any:
        @wraps(view)
        async def called(*args: object, **named: object) -> object:
            return await view(*args, **named)

        return called

    @shop.app.post("/pay")
    @logged
    @idempotent(shop.guard)
    async def pay() -> str:
        await asyncio.sleep(0)
        shop.runs.append(current().number)
        if "later" in request.args:
            raise NotDone("not now")
        return "paid"

    assert [send(shop.client, "/pay").text for _ in range(2)] == ["paid"] * 2
    assert code(send(shop.client, "/pay", data="another")) == "key-reused"
    assert send(shop.client, "/pay", key=None, token="").status_code == 500  # as ever: nothing is guarded
    assert [code(send(shop.client, "/pay?later=1", key="2")) for _ in range(2)] == ["not-done"] * 2
    assert shop.runs == [1, 1, 1]


@pytest.mark.parametrize("background", ["before", "after"])
def test_work_when_the_response_is_closed(background: Any) -> None:
    """Part of the request, unless the route says that it comes after it; never on a replay."""
    shop = Shop()
    states: list[str] = []

    def pay() -> Response:
        response = Response("paid")

        @response.call_on_close
        def close() -> None:
            states.extend(record.state for record in shop.store.open_admin().export())

        return response

    shop.post("/pay", pay, background=background)
    for replay in (False, True):
        with send(shop.client, "/pay") as response:
            assert replayed(response) is replay
    assert states == ["in_progress" if background == "before" else "completed"]


def test_a_client_that_keeps_the_context() -> None:
    """`with app.test_client()` looks at the request's context after the response."""
    shop = Shop()

    def pay() -> str:
        g.seen = current().number
        return "paid"

    shop.post("/pay", pay)
    with shop.app.test_client() as client:
        send(client, "/pay")
        assert (g.seen, request.path) == (1, "/pay")
        assert replayed(send(client, "/pay"))
        assert "seen" not in g


def test_no_attempt_outlives_its_request() -> None:
    """A thread serves many requests: the next one finds nothing of this one."""
    shop = Shop()
    shop.post("/pay", lambda: "paid")
    shop.app.post("/open")(lambda: str(current().number))
    shop.app.testing = True
    send(shop.client, "/pay")
    with pytest.raises(LookupError, match="no guarded call"):
        send(shop.client, "/open")


variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="outside")


def test_the_context_of_a_response_that_passes() -> None:
    """What an unprotected view sets is seen by the stream that it returns, with a key and without."""
    shop = Shop()

    def view() -> Response:
        variable.set("inside")

        def pieces() -> Iterator[bytes]:
            yield variable.get().encode()

        return Response(pieces())

    shop.app.post("/open")(view)
    assert [send(shop.client, "/open", key=key).text for key in (KEY, None)] == ["inside", "inside"]


def test_mounted_below_a_prefix() -> None:
    """The path that is compared is the whole one; problems point to where the application is."""
    shop = Shop(required=True)
    client = Client(DispatcherMiddleware(_nothing, {"/shop": shop.app.wsgi_app}))
    refused = client.post("/shop/orders", json={"amount": 1}, headers={"Authorization": "Bearer alice"})
    assert refused.get_json(force=True)["type"] == "http://localhost/shop/idempotency#key-missing"
    assert client.get("/shop/idempotency").status_code == 200


def _nothing(_: object, start_response: Any) -> list[bytes]:
    start_response("404 Not Found", [])
    return []


def test_a_duplicate_meanwhile() -> None:
    """409 with when to come back, while the first one runs; then its response."""
    shop = Shop()
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> str:
        shop.runs.append(1)
        begun.set()
        assert go_on.wait(20)
        return "paid"

    shop.post("/slow", slow)
    first = threading.Thread(target=lambda: send(shop.client, "/slow"))
    first.start()
    assert begun.wait(20)
    refused = send(shop.client, "/slow")
    go_on.set()
    first.join()
    assert (refused.status_code, code(refused)) == (409, "in-flight")
    assert int(refused.headers["Retry-After"]) >= 1
    assert (send(shop.client, "/slow").text, shop.runs) == ("paid", [1])


@pytest.mark.parametrize(
    "hostile", [{"HTTP_IDEMPOTENCY_KEY": "\xe9"}, {"HTTP_IDEMPOTENCY_KEY": "a,b"}, {"CONTENT_LENGTH": "-5"}]
)
def test_hostile_bytes(hostile: dict[str, str]) -> None:
    """A refusal or a run, and never an error of ours."""
    shop = Shop()
    shop.post("/pay", lambda: "paid")
    response = send(shop.client, "/pay", environ_overrides=hostile)
    assert response.status_code in (200, 400)


def test_decorated_below_a_cache_of_other_decorators() -> None:
    """Marks are found through decorators that stand around ours."""
    from retrysafe._http.marked import marked

    shop = Shop()
    inner = idempotent(shop.guard, retention=60)(lambda: "paid")

    def outer() -> str:
        return "paid"

    outer.__wrapped__ = inner  # type: ignore[attr-defined]  # as functools.wraps leaves it
    found = marked(outer)
    assert found is not None
    assert (found.guard, found.rules.policy.retention) == (shop.guard, 60)
