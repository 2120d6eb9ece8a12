"""What a job does with what a receiver says: servers are real, and so are their failures."""

import asyncio
import gzip
import logging
import pickle
import threading
import time
import tracemalloc
from collections.abc import Generator, Mapping
from itertools import chain, repeat
from pathlib import Path
from uuid import UUID

import httpx
import pytest
from pydantic import BaseModel

from retrysafe import ConfigurationError
from retrysafe.callbacks.jobs import (
    Delivered,
    DeliveryFailed,
    DeliveryRefused,
    NotDelivered,
    deliver,
    deliver_async,
)
from retrysafe.testing.ports import free_port
from tests.callbacks.jobs.receiver import Behaviour, Raw, Reply, after, always, receiving
from tests.callbacks.jobs.sending import BODY, BOTH_WAYS, CALLBACK, QUICK, Deliver, awaiting, blocking

PROCESSED = Reply(200, b'{"message": "Callback processed", "idempotent_replayed": false}')
DUPLICATE = Reply(
    200,
    b'{"message": "Callback already processed", "idempotent_replayed": true, '
    b'"original_received_at": "2026-01-01T00:00:00Z"}',
)
REPLAYED = {
    "message": "Callback already processed",
    "idempotent_replayed": True,
    "original_received_at": "2026-01-01T00:00:00Z",
}
URL = "http://service.example/callbacks"


@BOTH_WAYS
def test_one_request(send: Deliver) -> None:
    """What is sent, and what is made of the acknowledgement."""
    with receiving(always(PROCESSED)) as receiver:
        result = send(url=receiver.url, headers={"Authorization": "Bearer token"})
    assert result == Delivered(200, 1, False, {"message": "Callback processed", "idempotent_replayed": False})
    [request] = receiver.requests
    assert request.path == "/callbacks"
    assert request.body == BODY
    assert request.headers["content-type"] == "application/json"
    assert request.headers["x-correlation-id"] == "trace-1"
    assert request.headers["authorization"] == "Bearer token"
    assert request.headers["user-agent"].startswith("retrysafe/")
    assert "webhook-signature" not in request.headers


@BOTH_WAYS
def test_a_duplicate(send: Deliver) -> None:
    """An earlier delivery was processed and its acknowledgement lost: that is a success, too."""
    with receiving(always(DUPLICATE)) as receiver:
        result = send(url=receiver.url)
    assert isinstance(result, Delivered)
    assert result.duplicate
    assert result.response["original_received_at"] == "2026-01-01T00:00:00Z"


@BOTH_WAYS
@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_acknowledges(send: Deliver, status: int) -> None:
    with receiving(always(Reply(status, b""))) as receiver:
        assert send(url=receiver.url) == Delivered(status, 1, False, {})


@pytest.mark.parametrize(
    "body",
    [b"", b"ok", b"[]", b'"text"', b"\xff\xfe", b"{", b"[" * 60_000, b'{"idempotent_replayed": "true"}',
     b'{"idempotent_replayed": 1}', b"9" * 60_000, b"{" + b" " * 200_000 + b"}"],
    ids=lambda body: repr(body[:30]),
)  # fmt: skip
def test_any_body_will_do(body: bytes) -> None:
    """The status acknowledges; only a plain `true` says that it was a duplicate."""
    with receiving(always(Reply(200, body))) as receiver:
        result = blocking(url=receiver.url)
    assert isinstance(result, Delivered)
    assert not result.duplicate


@BOTH_WAYS
def test_a_status_counts_though_the_body_is_cut_off(send: Deliver) -> None:
    """To send it again would be a duplicate for sure."""
    with receiving(always("cut")) as receiver:
        assert send(url=receiver.url) == Delivered(200, 1, False, {})


OK = b"HTTP/1.1 200 OK\r\n"
COMPRESSED = b"Content-Encoding: gzip\r\n\r\n"


@BOTH_WAYS
def test_a_compressed_body_is_not_decompressed(send: Deliver) -> None:
    """It was not asked for, and a few bytes could become as many as there is memory."""
    bomb = gzip.compress(b"\0" * 50_000_000)
    with receiving(always(Raw([OK, COMPRESSED, bomb]))) as receiver:
        tracemalloc.start()
        try:
            assert send(url=receiver.url) == Delivered(200, 1, False, {})
            assert tracemalloc.get_traced_memory()[1] < 10_000_000
        finally:
            tracemalloc.stop()


@BOTH_WAYS
def test_a_compressed_body_of_nothing(send: Deliver) -> None:
    """Without end, and without a byte that a decompression would give."""
    nothing = repeat(b"\0\0\0\xff\xff" * 2000)
    with receiving(always(Raw(chain([OK + COMPRESSED + gzip.compress(b"")[:10]], nothing)))) as receiver:
        began = time.monotonic()
        assert send(url=receiver.url, timeout=20) == Delivered(200, 1, False, {})
        assert time.monotonic() - began < 15


def test_a_body_that_was_read_already() -> None:
    """By a hook of the client; a transport of a test has never sent it."""
    with (
        receiving(always(DUPLICATE)) as receiver,
        httpx.Client(event_hooks={"response": [lambda response: response.read()]}) as client,
    ):
        assert deliver(CALLBACK, url=receiver.url, client=client) == Delivered(200, 1, True, REPLAYED)

    def service(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=REPLAYED)

    async def main() -> object:
        async with httpx.AsyncClient(transport=httpx.MockTransport(service)) as client:
            return await deliver_async(CALLBACK, url=URL, client=client)

    assert asyncio.run(main()) == Delivered(200, 1, True, REPLAYED)
    with httpx.Client(transport=httpx.MockTransport(service)) as client:
        assert deliver(CALLBACK, url=URL, client=client) == Delivered(200, 1, True, REPLAYED)


# --- attempts


@BOTH_WAYS
@pytest.mark.parametrize(
    "failure",
    [
        *(Reply(status) for status in (300, 304, 400, 401, 403, 404, 409, 422, 429, 500, 502, 503, 504)),
        Reply(422, headers={"X-Should-Retry": "true"}),
        Reply(503, headers={"Retry-After": "0"}),
        Reply(503, headers={"Set-Cookie": "server=broken"}),
        Reply(503, headers={"Retry-After": "soon"}),
        Reply(503, headers={"retry-after-ms": "NaN"}),
        Reply(503, headers={"retry-after-ms": "-1"}),
        "drop",
    ],
    ids=str,
)
def test_anything_else_is_tried_again(send: Deliver, failure: Behaviour) -> None:
    """With the same bytes and the same headers each time, on a new attempt that is counted."""
    with receiving(after(3, failure, DUPLICATE)) as receiver:
        result = send(url=receiver.url)
    assert isinstance(result, Delivered)
    assert (result.status, result.attempts, result.duplicate) == (200, 4, True)
    assert receiver.requests == [receiver.requests[0]] * 4
    assert receiver.bodies[0] == BODY


@BOTH_WAYS
def test_a_receiver_that_hangs(send: Deliver) -> None:
    """After the timeout it may have processed the callback or not: the same is sent again."""
    with receiving(after(1, "hang", DUPLICATE)) as receiver:
        result = send(url=receiver.url, timeout=0.1)
    assert isinstance(result, Delivered)
    assert result.attempts >= 2  # on a machine that is very busy, another one may take as long
    assert receiver.bodies == [BODY] * result.attempts


@BOTH_WAYS
@pytest.mark.parametrize(
    "trickle",
    [chain([OK + b"X: "], repeat(b"a")), repeat(b"HTTP/1.1 102 Processing\r\n\r\n")],
    ids=["header", "informational"],
)
def test_a_receiver_that_never_comes_to_an_end(
    send: Deliver,
    trickle: Generator[bytes],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each byte comes in time, and the response never does: the attempt has an end, and the next begins."""
    monkeypatch.setattr("retrysafe.callbacks.jobs.delivery._PHASES", 1)
    with receiving(after(1, Raw(trickle, 0.02), DUPLICATE)) as receiver:
        result = send(url=receiver.url, timeout=1)
    assert isinstance(result, Delivered)
    assert result.attempts >= 2
    assert "no response within 1 s, although something was received" in caplog.text


def test_a_receiver_that_trickles_on_a_connection_that_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that the client has opened for something else, and that was kept since."""
    monkeypatch.setattr("retrysafe.callbacks.jobs.delivery._PHASES", 1)
    requests = threading.Semaphore(0)

    def responses() -> Generator[bytes]:
        """To three requests, the last of which has no end."""
        for _ in range(2):
            assert requests.acquire(timeout=30)
            time.sleep(0.2)  # until it is sent: what comes before is not taken for a response
            yield b"HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n"
        assert requests.acquire(timeout=30)
        time.sleep(0.2)
        yield OK + b"X: "
        yield from repeat(b"a")

    with (
        httpx.Client(event_hooks={"request": [lambda _: requests.release()]}) as client,
        receiving(after(1, Raw(responses(), 0.01), DUPLICATE)) as receiver,
    ):
        assert client.post(receiver.url, content=b"").status_code == 503
        result = deliver(CALLBACK, url=receiver.url, client=client, timeout=1, back_off=QUICK)
    assert isinstance(result, Delivered)
    assert result.attempts == 3


def test_a_thread_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a function of `atexit`: a delivery is made all the same."""

    def start(_thread: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with receiving(always(PROCESSED)) as receiver:
        monkeypatch.setattr("threading.Timer.start", start)
        assert isinstance(blocking(url=receiver.url), Delivered)


@BOTH_WAYS
def test_a_receiver_that_is_not_there(send: Deliver) -> None:
    """A refused connection is tried again until the horizon ends."""
    url = f"http://127.0.0.1:{free_port()}/callbacks?token=confidential"
    with pytest.raises(DeliveryFailed) as raised:
        send(url=url, horizon=0.5)
    assert raised.value.status is None
    assert raised.value.attempts >= 1
    assert "within its horizon of 0.5 s: ConnectError" in str(raised.value)
    assert "confidential" not in str(raised.value)


@BOTH_WAYS
def test_redirects_are_not_followed(send: Deliver, caplog: pytest.LogCaptureFixture) -> None:
    """A POST that was redirected could become a GET, or take its credentials to another host."""
    with receiving(always(Reply(200))) as elsewhere:
        redirect = Reply(307, headers={"Location": elsewhere.url})
        with receiving(after(2, redirect, Reply(410))) as receiver, pytest.raises(DeliveryRefused):
            send(url=receiver.url)
    assert elsewhere.requests == []
    assert receiver.bodies == [BODY] * 3
    assert "307, a redirect, which is not followed: give the URL that it leads to" in caplog.text


@BOTH_WAYS
@pytest.mark.parametrize(
    "location",
    [
        "mailto:x",
        "javascript:alert(1)",
        "http://xn--/",
        "http://[::1",
        "http://a..b/",
        "//",
        "\xff",
        "http://a:0:/",
    ],
)
def test_redirects_to_nowhere(send: Deliver, location: str) -> None:
    """httpx reads where they lead to, and what it raises is a failed attempt and not the end of the job."""
    with receiving(after(2, Reply(302, headers={"Location": location}), DUPLICATE)) as receiver:
        result = send(url=receiver.url)
    assert isinstance(result, Delivered)
    assert result.attempts == 3


@pytest.mark.parametrize("send", [deliver, deliver_async])
def test_redirects_are_not_followed_by_clients_that_would(send: object) -> None:
    """Whatever the client that is passed does elsewhere."""
    with (
        receiving(always(Reply(200))) as elsewhere,
        receiving(after(1, Reply(302, headers={"Location": elsewhere.url}))) as receiver,
    ):
        if send is deliver:
            with httpx.Client(follow_redirects=True) as client:
                deliver(CALLBACK, url=receiver.url, client=client, back_off=QUICK)
                assert not client.is_closed
        else:

            async def main() -> None:
                async with httpx.AsyncClient(follow_redirects=True) as client:
                    await deliver_async(CALLBACK, url=receiver.url, client=client, back_off=QUICK)
                    assert not client.is_closed

            asyncio.run(main())
    assert elsewhere.requests == []
    assert len(receiver.requests) == 2


@BOTH_WAYS
@pytest.mark.parametrize(
    "asked",
    [{"retry-after-ms": "120"}, {"Retry-After": "0.12"}, {"Retry-After": "9", "retry-after-ms": "120"}],
)
def test_a_receiver_says_when(send: Deliver, asked: dict[str, str]) -> None:
    """Not before, whatever the back-off would be."""
    with receiving(after(1, Reply(503, headers=asked))) as receiver:
        began = time.monotonic()
        send(url=receiver.url)
        assert time.monotonic() - began >= 0.12
    assert len(receiver.requests) == 2


@pytest.mark.parametrize("asked", ["9" * 30, "9" * 400, "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_a_receiver_that_says_never(asked: str) -> None:
    """The horizon is the limit: the last attempt is at its end."""
    with receiving(always(Reply(503, headers={"Retry-After": asked}))) as receiver:
        began = time.monotonic()
        with pytest.raises(DeliveryFailed, match="503") as raised:
            blocking(url=receiver.url, horizon=0.3)
        assert time.monotonic() - began >= 0.3
    assert raised.value.attempts == len(receiver.requests) <= 2  # one, if it took longer than the horizon
    assert raised.value.status == 503


# --- refusals


@BOTH_WAYS
@pytest.mark.parametrize(
    "refusal",
    [
        Reply(410),
        Reply(422, b'{"detail": "used for\\nanother body"}', {"X-Should-Retry": "false"}),
        Reply(503, headers={"x-should-retry": " FALSE ", "Retry-After": "1"}),
    ],
    ids=lambda reply: str(reply.status),
)
def test_a_refusal_is_final(send: Deliver, refusal: Reply) -> None:
    """Where the receiver says that another attempt is of no use, there is none."""
    with receiving(after(2, Reply(500), refusal)) as receiver, pytest.raises(DeliveryRefused) as raised:
        send(url=receiver.url)
    assert (raised.value.status, raised.value.attempts) == (refusal.status, 3)
    assert len(receiver.requests) == 3
    assert f"callback '{CALLBACK.callback_id}' was refused" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert refusal.status != 422 or str(raised.value).endswith(r"422, 'used for\nanother body'")


def test_refusals_of_clients_with_hooks() -> None:
    """`raise_for_status` in a hook, as httpx documents it: each status means what it means."""

    def hook(response: httpx.Response) -> None:
        response.raise_for_status()

    with (
        httpx.Client(event_hooks={"response": [hook]}) as client,
        receiving(after(1, Reply(503, headers={"retry-after-ms": "120"}), Reply(410))) as receiver,
    ):
        began = time.monotonic()
        with pytest.raises(DeliveryRefused) as raised:
            deliver(CALLBACK, url=receiver.url, client=client, back_off=QUICK)
        assert time.monotonic() - began >= 0.12
    assert (raised.value.status, raised.value.attempts) == (410, 2)


class Token(httpx.Auth):
    """A token that another service gives."""

    def __init__(self, url: str) -> None:
        self.url = url

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        response = yield httpx.Request("POST", self.url, content=b"")
        response.raise_for_status()
        request.headers["Authorization"] = "Bearer token"
        yield request


def test_a_token_that_cannot_be_had(caplog: pytest.LogCaptureFixture) -> None:
    """The receiver has said nothing, whatever the status of the service that gives tokens: try again."""
    with (
        receiving(after(2, Reply(410))) as tokens,
        receiving(always(PROCESSED)) as receiver,
        httpx.Client(auth=Token(tokens.url + "?key=confidential")) as client,
    ):
        result = deliver(CALLBACK, url=receiver.url, client=client, back_off=QUICK)
    assert isinstance(result, Delivered)
    assert result.attempts == 3
    assert receiver.requests[0].headers["authorization"] == "Bearer token"
    assert caplog.text.count("HTTPStatusError: 410 from 127.0.0.1") == 2
    assert "confidential" not in "".join(
        record.getMessage() for record in caplog.records if record.name == "retrysafe.callbacks.jobs"
    )


def test_errors_can_be_pickled(tmp_path: Path) -> None:
    """A pool of processes hangs on one that cannot."""
    for error in (
        DeliveryRefused("refused", status=410, attempts=2),
        DeliveryFailed("failed", status=None, attempts=3),
    ):
        error.file = tmp_path / "callback.json"
        again: DeliveryRefused | DeliveryFailed = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert (again.status, again.attempts, again.file) == (error.status, error.attempts, error.file)


def test_what_a_receiver_says_is_shortened() -> None:
    """An error of the protocol quotes what was received, which may be long."""
    with (
        receiving(always(Raw([OK + b"\x1b[31m bad" * 5000 + b"\r\n\r\n"]))) as receiver,
        pytest.raises(DeliveryFailed) as raised,
    ):
        blocking(url=receiver.url, horizon=0.2)
    assert "RemoteProtocolError: illegal header line" in str(raised.value)
    assert len(str(raised.value)) < 400


def test_each_failed_attempt_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An operator sees why a job has not ended yet."""
    with receiving(after(2, Reply(503, b'{"title": "Not now"}'))) as receiver:
        blocking(url=receiver.url)
    lines = [record.getMessage() for record in caplog.records if record.name == "retrysafe.callbacks.jobs"]
    assert [record.levelno for record in caplog.records if record.name == "retrysafe.callbacks.jobs"] == [
        logging.WARNING
    ] * 2
    assert "was not acknowledged at attempt 2, the next one is in 0.0 s: 503, 'Not now'" in lines[1]


# --- what is sent


@BOTH_WAYS
def test_without_a_url_nothing_is_sent(send: Deliver) -> None:
    """A job that was launched without one does not call back; that is no error."""
    assert send(url=None) == NotDelivered("the launch gave no callback_url")


def test_a_mapping_is_the_same_bytes_in_any_order() -> None:
    """A job that is restarted may build it in another order."""
    with receiving(always(Reply())) as receiver:
        blocking({"status": "é", "run_id": "r", "callback_id": "c"}, url=receiver.url)
        blocking({"callback_id": "c", "run_id": "r", "status": "é"}, url=receiver.url)
    assert receiver.bodies == [b'{"callback_id":"c","run_id":"r","status":"\\u00e9"}'] * 2


def test_bytes_are_sent_as_they_are() -> None:
    with receiving(always(Reply())) as receiver:
        blocking(b"\x00\xff", url=receiver.url, callback_id="c", correlation_id="trace")
    assert receiver.bodies == [b"\x00\xff"]
    assert receiver.requests[0].headers["x-correlation-id"] == "trace"


def test_ids_that_no_header_can_have() -> None:
    """They are in the body; the header is left out."""
    callback = CALLBACK.model_copy(update={"correlation_id": "lauf\r\nünf"})
    with receiving(always(Reply())) as receiver:
        blocking(callback, url=receiver.url)
    assert "x-correlation-id" not in receiver.requests[0].headers


class Own(BaseModel):
    """A payload that is not a subclass of ours."""

    callback_id: UUID


def test_other_models_have_ids_too() -> None:
    own = Own(callback_id=UUID(int=7))
    with receiving(always(Reply())) as receiver:
        blocking(own, url=receiver.url, callback_id=str(UUID(int=7)))
        with pytest.raises(
            ConfigurationError, match="callback_id is 'x', and the callback itself says '0000"
        ):
            blocking(own, url=receiver.url, callback_id="x")


@pytest.mark.parametrize(
    ("callback", "options", "message"),
    [
        (CALLBACK, {"url": "/callbacks"}, "url must be an absolute http or https URL, got the scheme ''"),
        (CALLBACK, {"url": "ftp://host/"}, "got the scheme 'ftp' and the host 'host'"),
        (CALLBACK, {"url": "http://"}, "url must be"),
        (CALLBACK, {"url": "http://host:port/"}, "url is not valid: Invalid port"),
        (CALLBACK, {"url": f"http://{'a' * 64}.example/"}, "url is not valid: .* too long"),
        (CALLBACK, {"url": "http://a..example/"}, "url is not valid: .* empty"),
        (CALLBACK, {"url": "http://xn--a/"}, "url is not valid: "),
        (
            CALLBACK,
            {"url": "http://host:65536/"},
            "url is not valid: expected a port from 1 to 65535, got 65536",
        ),
        (CALLBACK, {"url": "http://host:0/"}, "url is not valid: expected a port"),
        (CALLBACK, {"horizon": 0}, "horizon must be greater than 0 and less than 30 days"),
        (CALLBACK, {"horizon": "30d"}, "less than 30 days, after which the receiver"),
        (CALLBACK, {"horizon": "long"}, "horizon: 'long' is not a valid duration"),
        (CALLBACK, {"timeout": 0}, "timeout must be greater than 0, got 0"),
        (CALLBACK, {"timeout": "-1"}, "timeout: '-1' is not a valid duration"),
        (CALLBACK, {"timeout": -1}, "timeout must not be negative, got -1"),
        (CALLBACK, {"timeout": 1e12}, "timeout must be at most a day, got 1e\\+12 s"),
        (CALLBACK, {"callback_id": "other"}, "callback_id is 'other', and the callback itself says"),
        (CALLBACK, {"headers": {"Content-Length": "3"}}, "headers may not contain Content-Length"),
        (CALLBACK, {"headers": {"X-A": "b\r\nX-C: d"}}, "the header 'X-A' cannot be sent"),
        (CALLBACK, {"headers": {"X A": "b"}}, "the header 'X A' cannot be sent"),
        (CALLBACK, {"headers": {"X:A": "b"}}, "the header 'X:A' cannot be sent"),
        (CALLBACK, {"headers": {"Authorization": "é"}}, "the header 'Authorization' cannot be sent"),
        (b"", {"callback_id": "é" * 128}, "callback_id must have at most 255 bytes in UTF-8, got 256"),
        (b"", {"callback_id": "\ud800"}, "callback_id is text that has no UTF-8"),
        (b"", {"callback_id": 7}, "callback_id must be text, got 7"),
        (b"", {"correlation_id": 7}, "correlation_id must be text, got 7"),
        (b"", {"headers": {"X-A": 7}}, "headers must be text, got 'X-A' with int"),
        ({"callback_id": 7}, {}, "callback_id of a callback must be text, got 7"),
        ({"at": float("nan")}, {}, "cannot be written as JSON"),
        ({"at": object()}, {}, "cannot be written as JSON"),
        ("text", {}, "must be a pydantic model, a mapping or bytes, got str"),
    ],
)
def test_what_cannot_be_sent_is_refused_at_once(
    callback: Mapping[str, object] | bytes, options: dict[str, object], message: str
) -> None:
    """And not after three days of attempts."""
    for send in (blocking, awaiting):
        with pytest.raises(ConfigurationError, match=message):
            send(callback, **{"url": "http://127.0.0.1:9/", **options})  # type: ignore[arg-type]  # so it is


def test_options_that_do_not_exist() -> None:
    with pytest.raises(TypeError, match="horizont"):
        deliver(CALLBACK, url="http://127.0.0.1:9/", horizont=3)  # type: ignore[call-arg]  # that is the point


def test_the_event_loop_is_free_while_a_delivery_waits() -> None:
    """Another one begins and ends meanwhile."""

    async def main() -> None:
        waiting = asyncio.ensure_future(deliver_async(CALLBACK, url=away.url))
        await asyncio.to_thread(away.wait_for, 1)
        assert await deliver_async(CALLBACK, url=receiver.url) == Delivered(200, 1, False, {})
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    with (
        receiving(always(Reply(503, headers={"Retry-After": "1000"}))) as away,
        receiving(always(Reply())) as receiver,
    ):
        asyncio.run(main())
    assert len(away.requests) == len(receiver.requests) == 1
