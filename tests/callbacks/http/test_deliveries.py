"""What a sender is told, and how often its event is handled: the same in every framework."""

import json
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from retrysafe import NotDone, current
from tests.callbacks.http.receiving import KINDS, JobFinished, Service, finished

HOUR = 3600.0


def test_the_first_and_the_next(kind: str) -> None:
    """Handled once; each later delivery is acknowledged and told when the first one came."""
    service = Service(kind)
    first = service.post(finished())
    assert first.status == 200
    assert first.json() == {"message": "Callback processed", "idempotent_replayed": False}
    service.clock.elapse(5)
    second = service.post(finished())
    service.clock.elapse(75 * HOUR)
    third = service.post(finished())
    for reply in (second, third):
        assert (reply.status, reply.is_duplicate) == (200, True)
        assert reply.json()["message"] == "Callback already processed"
        assert reply.headers["idempotent-replayed"] == "true"
        received = datetime.fromisoformat(reply.json()["original_received_at"])
        assert received.timestamp() == pytest.approx(1_700_000_000.0)
        assert reply.headers["cache-control"] == "no-store"
    assert second.json() == third.json()
    assert len(service.handled) == 1
    assert isinstance(service.handled[0], JobFinished)
    assert service.verdicts() == ["completed", "replayed", "replayed"]


def test_the_response_of_the_handler(kind: str) -> None:
    """The first delivery gets it, and nothing of it is stored or told to others."""
    service = Service(kind)
    service.does = lambda _: service.response(201, "made")
    first, second = service.post(finished()), service.post(finished())
    assert (first.status, first.body) == (201, b"made")
    assert second.is_duplicate
    assert b"made" not in second.body
    assert service.receipt() is not None


def test_its_own_message(framework: str) -> None:
    service = Service(framework, message="Thank you, we know")
    service.post(finished())
    assert service.post(finished()).json()["message"] == "Thank you, we know"


def test_in_progress(kind: str) -> None:
    """Refused so that it comes again, never acknowledged: its handler may still fail."""
    service = Service(kind)
    with service.paused(finished()) as first:
        refused = service.post(finished())
        assert (refused.status, refused.code) == (503, "in-flight")
        assert int(refused.headers["retry-after"]) >= 1
        receipt = service.receipt()
        assert receipt is not None
        assert (receipt.state, receipt.status) == ("in_progress", "processing")
    assert first.result().status == 200
    assert service.post(finished()).is_duplicate
    assert len(service.handled) == 1


def test_in_progress_and_acknowledged(framework: str) -> None:
    """For senders that cannot bear a 503."""
    service = Service(framework, in_progress="acknowledge")
    with service.paused(finished()):
        assert service.post(finished()).is_duplicate
    assert len(service.handled) == 1


def test_a_handler_that_raises(kind: str) -> None:
    """500, and the event is handled again when it is delivered again."""
    service = Service(kind)

    def fail(_: object) -> None:
        raise RuntimeError("out of luck")

    service.does = fail
    assert [service.post(finished()).status for _ in range(2)] == [500, 500]
    receipt = service.receipt()
    assert receipt is not None
    assert (receipt.state, receipt.status, receipt.attempt) == ("failed", "failed", 2)
    assert "out of luck" in receipt.details["error"]
    service.does = lambda _: None
    again = service.post(finished())
    assert (again.status, again.json()["idempotent_replayed"]) == (200, False)
    assert service.post(finished()).is_duplicate
    assert len(service.handled) == 3


def test_a_handler_that_returns_a_500(framework: str) -> None:
    service = Service(framework)
    service.does = lambda _: service.response(502, "upstream")
    first = service.post(finished())
    assert (first.status, first.body) == (502, b"upstream")
    service.does = lambda _: None
    assert service.post(finished()).status == 200
    assert len(service.handled) == 2


@pytest.mark.parametrize("how", ["returned", "raised"])
@pytest.mark.parametrize("status", [400, 404, 409, 422, 429])
def test_a_handler_that_refuses(kind: str, how: str, status: int) -> None:
    """It has not handled the event: no receipt is left, and it is asked again."""
    service = Service(kind)

    def refuse(_: object) -> Any:
        if how == "raised":
            raise service.refusal(status)
        return service.response(status)

    service.does = refuse
    assert [service.post(finished()).status for _ in range(3)] == [status] * 3
    assert (service.records(), len(service.handled)) == (0, 3)
    service.does = lambda _: None
    assert service.post(finished()).status == 200
    assert service.post(finished()).is_duplicate


def test_a_handler_that_did_nothing(kind: str) -> None:
    """`NotDone`: 503 with its time, no receipt, and it is handled again."""
    service = Service(kind)

    def later(_: object) -> None:
        raise NotDone("the bucket is locked", retry_after=7)

    service.does = later
    refused = service.post(finished())
    assert (refused.status, refused.code, refused.headers["retry-after"]) == (503, "not-done", "7")
    assert service.records() == 0
    service.does = lambda _: None
    assert service.post(finished()).status == 200


def test_exceptions_that_mean_that_nothing_was_done(framework: str) -> None:
    service = Service(framework, retry_on=(ConnectionError,))

    def fail(_: object) -> None:
        raise ConnectionError("refused")

    service.does = fail
    assert service.post(finished()).code == "not-done"
    assert service.records() == 0


def test_current(kind: str) -> None:
    """A handler finds its attempt: a derived key for whom it calls itself."""
    service = Service(kind, guard={"secret": "a secret of the service"})
    keys: list[str] = []
    service.does = lambda _: keys.append(current().derive("email"))
    service.post(finished())
    service.post(finished("c-2"))
    assert len({*keys}) == 2


# --- ids


def test_without_an_id(kind: str) -> None:
    """As always: handled each time, and counted."""
    service = Service(kind)
    for payload in ({}, finished(None), finished("")):
        reply = service.post(payload)
        assert (reply.status, reply.json()["idempotent_replayed"]) == (200, False)
    assert (len(service.handled), service.records()) == (3, 0)
    assert service.verdicts() == ["keyless"] * 3


def test_without_an_id_in_a_plain_object(framework: str) -> None:
    """A member that was not sent is an id that was not sent, and no mistake of the code."""
    service = Service(framework, event=dict[str, object], id="data.id", subject="data.run")
    nameless: list[dict[str, object]] = [
        {},
        {"data": None},
        {"data": {}},
        {"data": {"id": None}},
        {"data": [1]},
    ]
    for payload in nameless:
        assert service.post(payload).status == 200
    assert service.post({"data": {"id": "1"}}).json()["idempotent_replayed"] is False
    assert service.post({"data": {"id": "1"}}).is_duplicate


@pytest.mark.parametrize(
    "id", ["x" * 256, "a\x00b", "a\nb", " padded ", "\ud800", "é" * 128, {"a": 1}, ["a"], 1.5, True]
)
def test_ids_that_are_none(framework: str, id: object) -> None:
    """422 and no receipt; never another id that looks alike."""
    service = Service(framework)
    reply = service.post(finished(id))
    assert (reply.status, reply.code) == (422, "payload-invalid")
    assert (service.records(), service.handled) == (0, [])


@pytest.mark.parametrize("id", [7, -1, "x" * 255, "ü", "8e03978e-40d5-43dd-bc93-6894a57f9324"])
def test_ids_of_other_types(framework: str, id: object) -> None:
    service = Service(framework)
    assert service.post(finished(id)).status == 200
    assert service.post(finished(id)).is_duplicate
    assert service.receipt(str(id)) is not None


def test_uuids(framework: str) -> None:
    """A UUID is one id, however it is written."""

    class Typed(JobFinished):
        callback_id: UUID | None = None

    service, id = Service(framework, event=Typed), uuid4()
    assert service.post(finished(str(id))).status == 200
    assert service.post(finished(id.hex.upper())).is_duplicate


@pytest.mark.parametrize(
    "field", [{"run_id": "x" * 2000}, {"run_id": [1]}, {"run_id": {"a": 1}}, {"run_id": True}]
)
def test_subjects_that_are_none(framework: str, field: dict[str, object]) -> None:
    service = Service(framework, event=dict[str, object])
    reply = service.post(finished(**field))
    assert (reply.status, reply.code) == (422, "payload-invalid")
    assert (service.records(), service.handled) == (0, [])


def test_invalid_payloads(kind: str) -> None:
    """Refused before anything is claimed."""
    service = Service(kind)
    for body in (b"", b"{", b"[]", b"null", b'{"run_id": 5}', b"\xff\xfe", b"[" * 100_000):
        reply = service.post(body)
        assert reply.status == 422 or (service.framework == "fastapi" and reply.status == 400), body
        if service.framework == "fastapi":
            assert "detail" in reply.json()
        else:
            assert reply.code == "payload-invalid"
    assert (service.records(), service.handled) == (0, [])


# --- the same id


def test_another_body(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Refused, counted and logged: acknowledged, the second event would be lost silently."""
    service = Service(kind)
    service.post(finished())
    reply = service.post(finished(status="failed"))
    assert (reply.status, reply.code) == (422, "key-reused")
    assert service.verdicts()[-1] == "key-reused"
    assert [line for line in caplog.records if "jobs" in line.getMessage()]
    assert service.post(finished()).is_duplicate
    assert len(service.handled) == 1


def test_another_spelling(framework: str) -> None:
    """What an event means is compared, and not its bytes."""
    service = Service(framework)
    service.post(finished())
    spaced = json.dumps(dict(reversed(finished().items())), indent=3).encode()
    assert service.post(spaced).is_duplicate


@pytest.mark.parametrize(
    ("compare", "same"),
    [("all", False), (("run_id",), True), (("status",), False), (None, True), (lambda e: e.run_id, True)],
)
def test_what_is_compared(framework: str, compare: Any, same: bool) -> None:
    service = Service(framework, compare=compare)
    service.post(finished())
    reply = service.post(finished(status="other"))
    assert reply.is_duplicate if same else reply.code == "key-reused"


def test_numbers_that_are_none(framework: str) -> None:
    """`NaN` is no JSON; what a framework lets pass is compared like everything else."""
    service = Service(framework, event=dict[str, object])
    replies = [service.post(b'{"callback_id": "1", "x": NaN}') for _ in range(2)]
    assert all(reply.status in (200, 422) for reply in replies)


def test_nested_too_deep(framework: str) -> None:
    service = Service(framework, event=dict[str, object])
    deep: object = 1
    for _ in range(150):
        deep = [deep]
    reply = service.post(finished(x=deep))
    assert (reply.status, reply.code) == (422, "payload-invalid")
    assert (service.records(), service.handled) == (0, [])


@pytest.mark.parametrize("text", ["[" * 300 + "]" * 300, r'{"\ud800": 1}'], ids=["deep", "surrogate"])
@pytest.mark.parametrize("store", [False, True])
def test_a_model_that_cannot_be_compared(framework: str, text: str, store: bool) -> None:
    """Its sender is told so: after a 500 it would come again and again."""
    service = Service(framework, event=Loose, store_payload=store)
    reply = service.post(b'{"callback_id": "1", "data": %s}' % text.encode())
    assert (reply.status, reply.code) == (422, "payload-invalid")
    assert (service.records(), service.handled) == (0, [])


class Loose(JobFinished):
    data: Any = None


@pytest.mark.parametrize(
    "body", [b'\xef\xbb\xbf{"callback_id": "1"}', b'{"callback_id": "1", "run_id": "\\ud800"}']
)
@pytest.mark.parametrize("option", ["inbox", "store_payload"])
def test_what_no_worker_could_read(framework: str, body: bytes, option: str) -> None:
    """A framework may read more than a worker does: what is acknowledged can be handled."""
    service = Service(framework, inbox=option == "inbox", store_payload=True)
    reply = service.post(body)
    assert (reply.status, service.records(), service.handled) == (422, 0, [])


def test_two_sources(framework: str) -> None:
    """Each has ids of its own."""
    service = Service(framework, source=lambda event: event.status, name="jobs", compare=None)
    assert service.post(finished(status="a")).status == 200
    assert service.post(finished(status="b")).json()["idempotent_replayed"] is False
    assert service.post(finished(status="a")).is_duplicate
    assert service.post(finished(status="")).code == "payload-invalid"


def test_several_events_of_one_run(framework: str) -> None:
    """All are handled, and listed with it."""
    service = Service(framework)
    for id in ("a", "b", "c"):
        service.clock.elapse(1)
        assert service.post(finished(id)).status == 200
    assert [receipt.id for receipt in service.receipts.list("run-7")] == ["c", "b", "a"]
    assert service.receipts.list("run-8") == []


def test_what_a_receipt_says(framework: str) -> None:
    """Of its payload, and how often it was delivered."""
    service = Service(framework)
    for _ in range(3):
        service.post(finished(result_uri="s3://out"), {"X-Correlation-Id": "trace-1"})
    service.guard.runtime.leases.close()  # stores what was counted
    receipt = service.receipt()
    assert receipt is not None
    assert (receipt.source, receipt.subject, receipt.state) == ("jobs", "run-7", "completed")
    assert (receipt.status, receipt.result_uri) == ("success", "s3://out")
    assert (receipt.deliveries, len(receipt.delivered_at), receipt.correlation_id) == (3, 2, "trace-1")


def test_correlation_ids(framework: str) -> None:
    """That of the payload comes first; an unusable one is left out."""

    class Correlated(JobFinished):
        correlation_id: Any = None

    service = Service(framework, event=Correlated)
    service.post(finished("1", correlation_id="mine"), {"X-Correlation-Id": "theirs"})
    service.post(finished("2", correlation_id={"a": 1}), {"X-Correlation-Id": "theirs"})
    service.post(finished("3"), {"X-Correlation-Id": "not an id"})
    found = [service.receipt(id) for id in ("1", "2", "3")]
    assert [one and one.correlation_id for one in found] == ["mine", "theirs", None]


# --- check=


@pytest.mark.parametrize("check", ["plain", "coroutine function", "object"])
def test_what_it_is_about_does_not_exist(kind: str, check: str) -> None:
    """404, and no receipt; handled once it exists."""
    runs: set[str] = set()

    async def asked(event: JobFinished) -> bool:
        return event.run_id in runs

    class Asked:
        async def __call__(self, event: JobFinished) -> bool:
            return event.run_id in runs

    checks = {"plain": lambda event: event.run_id in runs, "coroutine function": asked, "object": Asked()}
    service = Service(kind, check=checks[check])
    reply = service.post(finished())
    assert (reply.status, reply.code) == (404, "subject-unknown")
    assert (service.records(), service.handled) == (0, [])
    runs.add("run-7")
    assert service.post(finished()).status == 200
    runs.clear()
    assert service.post(finished()).status == 404  # asked before it is looked up


def test_a_check_that_returns_a_coroutine(framework: str) -> None:
    """It is awaited, or it is an error where nothing can be: an unknown run never passes."""

    async def asked(event: JobFinished) -> bool:
        return False

    service = Service(framework, check=lambda event: asked(event))
    assert service.post(finished()).status == (500 if framework == "flask" else 404)
    assert (service.records(), service.handled) == (0, [])


def test_a_check_that_raises(framework: str) -> None:
    """The framework's own refusal is the response."""

    def check(_: object) -> bool:
        raise service.refusal(410)

    service = Service(framework, check=check)
    assert service.post(finished()).status == 410
    assert (service.records(), service.handled) == (0, [])


# --- the store, and the end of the process


@pytest.mark.parametrize("kind", KINDS)
def test_draining(kind: str) -> None:
    """Nothing new is begun; what was handled is still acknowledged."""
    service = Service(kind)
    service.post(finished())
    service.guard.runtime.draining = True
    assert service.post(finished()).is_duplicate
    refused = service.post(finished("c-2"))
    assert (refused.status, refused.code) == (503, "draining")
    assert (refused.headers["retry-after"], len(service.handled)) == ("1", 1)
