"""Signed attempts, verified by the library that the authors of Standard Webhooks publish."""

import os
from base64 import b64encode
from pathlib import Path

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from retrysafe import ConfigurationError
from retrysafe.callbacks.jobs.__main__ import main
from retrysafe.callbacks.jobs.folder import Folder
from retrysafe.callbacks.jobs.request import make_request
from tests.callbacks.jobs.receiver import Reply, after, always, receiving
from tests.callbacks.jobs.sending import (
    BODY,
    BOTH_PENDING,
    BOTH_WAYS,
    CALLBACK,
    Deliver,
    DeliverPending,
    blocking,
    pending_blocking,
)

SECRET = "whsec_" + b64encode(os.urandom(32)).decode()


@BOTH_WAYS
def test_each_attempt_is_signed(send: Deliver) -> None:
    """Under the same id and over the same bytes."""
    with receiving(after(1, Reply(503))) as receiver:
        send(url=receiver.url, secret=SECRET)
    first, second = receiver.requests
    for request in (first, second):
        assert request.headers["webhook-id"] == CALLBACK.callback_id
        assert Webhook(SECRET).verify(request.body, request.headers)["run_id"] == "run-1"
    assert first.body == second.body == BODY
    other = "whsec_" + b64encode(os.urandom(32)).decode()
    with pytest.raises(WebhookVerificationError):
        Webhook(other).verify(first.body, first.headers)


def test_a_signature_is_as_old_as_its_attempt() -> None:
    """And not as the callback: receivers refuse what was signed some minutes ago."""
    with receiving(after(1, Reply(503, headers={"Retry-After": "1.1"}))) as receiver:
        blocking(url=receiver.url, secret=SECRET)
    first, second = (int(request.headers["webhook-timestamp"]) for request in receiver.requests)
    assert second > first


@BOTH_PENDING
def test_what_was_left_is_signed_by_who_delivers_it(pending: DeliverPending, tmp_path: Path) -> None:
    """With the id that it had: also where the callback itself has none."""
    with receiving(always(Reply())) as receiver:
        request = make_request(b'{"run_id": "r"}', receiver.url)
        held = Folder(tmp_path).hold(request)
        assert held is not None
        held.release()
        assert SECRET.encode() not in held.path.read_bytes()
        [found] = pending(tmp_path, secret=SECRET)
    assert found.outcome == "delivered"
    [received] = receiver.requests
    assert received.headers["webhook-id"] == request.message_id
    Webhook(SECRET).verify(received.body, received.headers)


def test_the_command_signs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the secret of its environment."""
    monkeypatch.setenv("RETRYSAFE_CALLBACK_SECRET", SECRET)
    with receiving(always(Reply())) as receiver:
        held = Folder(tmp_path).hold(make_request(BODY, receiver.url, callback_id="c"))
        assert held is not None
        held.release()
        assert main([str(tmp_path)]) == 0
    Webhook(SECRET).verify(receiver.bodies[0], receiver.requests[0].headers)


def test_what_cannot_be_signed_is_refused_at_once(tmp_path: Path) -> None:
    """A secret that is none, before anything is stored; and an id that the header cannot have."""
    for send in (lambda: blocking(url="http://127.0.0.1:9/", secret="whsec_?", folder=tmp_path),
                 lambda: pending_blocking(tmp_path, secret="whsec_?")):  # fmt: skip
        with pytest.raises(ConfigurationError, match="secret"):
            send()
    with pytest.raises(ConfigurationError, match="id must be"):
        blocking(b"", callback_id="a b", url="http://127.0.0.1:9/", secret=SECRET, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_one_that_cannot_be_signed_keeps_no_other_waiting(tmp_path: Path) -> None:
    """It stays, and the report says why."""
    with receiving(always(Reply())) as receiver:
        for name in ("a b", "c"):
            held = Folder(tmp_path).hold(make_request(b"", receiver.url, callback_id=name))
            assert held is not None
            held.release()
        found = {one.callback_id: one for one in pending_blocking(tmp_path, secret=SECRET)}
    assert found["c"].outcome == "delivered"
    assert found["a b"].outcome == "left"
    assert "id must be" in found["a b"].detail
    assert len(list(tmp_path.iterdir())) == 1
