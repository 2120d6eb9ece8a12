"""The profile `job-callbacks`: each sentence of its specification that a sender, job or operator can see.

Sentences about processes (jobs that are killed, two launchers) are shown by `examples/validation_service`.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("fastapi")

from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import create_engine, text

from retrysafe import Guard, current, stores
from retrysafe.callbacks import Receipts, receipts
from retrysafe.callbacks.jobs import Callback, Envelope, ExecutionContext, NotDelivered, deliver
from retrysafe.errors import ConfigurationError
from retrysafe.fastapi import idempotent, protect
from retrysafe.sqlalchemy import sessionmaker
from retrysafe.stores.memory import MemoryStore

Response = Any
"""Of whichever client Starlette's tests have."""

PAYLOAD = {"run_id": "run-1", "callback_id": "c-1", "status": "success", "result_uri": "gs://out/1.json"}
FINDINGS = {"run-1": ["too hot", "too cold"], "run-2": ["a leak"]}


class Service:
    """The worker that takes callbacks: runs, their findings and their summaries in one database."""

    def __init__(self, folder: Path) -> None:
        self.engine = create_engine(f"sqlite:///{folder / 'runs.db'}")
        with self.engine.begin() as db:
            db.execute(
                text("CREATE TABLE runs (id TEXT PRIMARY KEY, status TEXT, findings INTEGER DEFAULT 0)")
            )
            db.execute(text("CREATE TABLE findings (run TEXT, message TEXT)"))
            for run in FINDINGS:
                db.execute(text("INSERT INTO runs (id, status) VALUES (:run, 'running')"), {"run": run})
        self.guard = Guard(stores.from_engine(self.engine), profile="job-callbacks", effects="database")
        self.session = sessionmaker(self.guard)
        self.downloads = 0
        self.failures: list[Exception] = []
        self.receipts = receipts(self.guard, source="jobs", check=self.exists)
        self.app = FastAPI()
        protect(self.app, self.guard)

        @self.app.post("/callbacks")
        @self.receipts.fastapi
        def handle(callback: Callback) -> dict[str, str]:
            self.process(callback)
            return {"message": "processed"}

        self.client = TestClient(self.app, raise_server_exceptions=False)

    def exists(self, callback: Callback) -> bool:
        with self.engine.connect() as db:
            found = db.execute(text("SELECT 1 FROM runs WHERE id = :run"), {"run": callback.run_id})
            return found.first() is not None

    def process(self, callback: Callback) -> None:
        self.downloads += 1
        with self.session() as db:
            for message in FINDINGS[callback.run_id]:
                db.execute(
                    text("INSERT INTO findings VALUES (:run, :message)"),
                    {"run": callback.run_id, "message": message},
                )
            if self.failures:
                raise self.failures.pop()
            db.execute(
                text(
                    "UPDATE runs SET status = :status,"
                    " findings = (SELECT count(*) FROM findings WHERE run = :run) WHERE id = :run"
                ),
                {"run": callback.run_id, "status": callback.status},
            )
            db.commit()

    def post(self, **changed: object) -> Response:
        return self.client.post("/callbacks", json={**PAYLOAD, **changed})

    def run(self, id: str = "run-1") -> tuple[str, int, int]:
        """Its status, the number of findings in its summary, and how many there are."""
        with self.engine.connect() as db:
            row = db.execute(text("SELECT status, findings FROM runs WHERE id = :run"), {"run": id}).one()
            there = db.execute(text("SELECT count(*) FROM findings WHERE run = :run"), {"run": id}).scalar()
        return str(row[0]), int(row[1]), int(there or 0)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path)
    yield service
    service.guard.close()
    service.engine.dispose()


def test_a_retried_callback_changes_nothing(service: Service) -> None:
    """003-1 to 003-4: findings once, status once, counts right, and nothing downloaded again."""
    for _ in range(4):
        assert service.post().status_code == 200
    assert service.run() == ("success", 2, 2)
    assert service.downloads == 1


def test_after_a_failure_the_counts_are_right(service: Service) -> None:
    """003-1 to 003-3: what a failed attempt had written is gone when the next delivery is handled."""
    service.failures = [ConnectionError("the bucket is gone"), ConnectionError("still gone")]
    assert [service.post().status_code for _ in range(3)] == [500, 500, 200]
    assert service.run() == ("success", 2, 2)


def test_keys_and_callbacks_together(tmp_path: Path) -> None:
    """003-5: runs are created with keys of clients, callbacks have ids of the launcher, on one guard."""
    guard = Guard(f"sqlite:///{tmp_path / 'both.db'}", scope=lambda request: "acme", profile="validation-api")
    app = FastAPI()
    protect(app, guard)
    launched: list[str] = []
    finished: list[str] = []

    @app.post("/runs")
    @idempotent(guard, required=True)
    def create() -> dict[str, str]:
        launched.append(current().request_id)
        return {"run": str(len(launched))}

    received = receipts(guard, source="jobs")
    assert received.rules.policy.retention == 30 * 86400, "and not the 24 hours of keys"

    @app.post("/callbacks")
    @received.fastapi
    def handle(callback: Callback) -> None:
        finished.append(callback.run_id)

    client = TestClient(app)
    for _ in range(2):
        assert client.post("/runs", headers={"Idempotency-Key": "c-1"}).json() == {"run": "1"}
        assert client.post("/callbacks", json=PAYLOAD).status_code == 200
    assert (len(launched), len(finished)) == (1, 1)
    guard.close()


def test_several_callbacks_of_one_run(service: Service) -> None:
    """003-6, 003-7: the id is that of a message; new ones for the same run flow through, retries do not."""
    for id in ("c-1", "c-2", "c-1", "c-3", "c-2"):
        assert service.post(callback_id=id).status_code == 200
    assert service.downloads == 3
    assert [receipt.id for receipt in service.receipts.list("run-1")] == ["c-3", "c-2", "c-1"]


def test_the_launcher_makes_the_id() -> None:
    """003-8, 003-9: a UUID for each launch, in the envelope's context."""
    first, second = (Envelope.launch(run_id="run-1", callback_url=None) for _ in range(2))
    assert first.context.callback_id != second.context.callback_id
    assert UUID(first.context.callback_id).version == 4


def test_the_id_is_optional_and_described() -> None:
    """003-10."""
    assert ExecutionContext().callback_id is None
    assert ExecutionContext.model_fields["callback_id"].description


def test_without_a_url_the_job_does_not_deliver() -> None:
    """003-11."""
    envelope = Envelope.launch(run_id="run-1", callback_url=None)
    found = deliver(envelope.callback(status="success"), url=envelope.context.callback_url)
    assert isinstance(found, NotDelivered)


def test_the_job_echoes(service: Service, tmp_path: Path) -> None:
    """003-12, 003-13, 003-27, 003-32: read from a file, echoed with run, status and result; one trace."""
    Envelope.launch(run_id="run-1", callback_url="https://service.example/callbacks").write(
        tmp_path / "envelope.json"
    )
    envelope = Envelope.read(tmp_path / "envelope.json")
    callback = envelope.callback(status="success", result_uri="gs://out/1.json")
    assert callback.callback_id == envelope.context.callback_id
    assert service.client.post("/callbacks", json=callback.model_dump()).status_code == 200
    [receipt] = service.receipts.list("run-1")
    assert (receipt.id, receipt.subject) == (callback.callback_id, "run-1")
    assert (receipt.status, receipt.result_uri) == ("success", "gs://out/1.json")
    assert receipt.correlation_id == envelope.context.correlation_id


@pytest.mark.parametrize(("length", "status"), [(255, 200), (256, 422)])
def test_the_longest_id(service: Service, length: int, status: int) -> None:
    """003-14."""
    assert service.post(callback_id="x" * length).status_code == status
    assert len(service.receipts.list("run-1")) == (status == 200)


def test_the_receipt_belongs_to_a_run(service: Service) -> None:
    """003-15, 003-16: and says when it was received, by the store's clock."""
    before = datetime.now(UTC) - timedelta(seconds=5)
    service.post()
    service.post(callback_id="c-2", run_id="run-2")
    [receipt] = service.receipts.list("run-2")
    assert receipt.id == "c-2"
    assert before < receipt.received_at < datetime.now(UTC) + timedelta(seconds=5)


def test_the_status_is_processing_first(service: Service) -> None:
    """003-17, 003-18, 003-25: a placeholder, and the payload's own after success; the result at once."""
    seen: list[tuple[str, str]] = []
    process = service.process

    def look(callback: Callback) -> None:
        [receipt] = service.receipts.list("run-1")
        seen.append((receipt.status, receipt.result_uri))
        process(callback)

    service.process = look  # type: ignore[method-assign]  # to look in the middle
    service.post(status="failed_validation")
    [receipt] = service.receipts.list("run-1")
    assert seen == [("processing", "gs://out/1.json")]
    assert receipt.status == "failed_validation"


@pytest.mark.parametrize("payload", [{}, {"run_id": 5}, [], "text", {**PAYLOAD, "status": None}])
def test_an_invalid_payload(service: Service, payload: object) -> None:
    """003-19: it is validated before anything, and leaves no receipt."""
    assert service.client.post("/callbacks", json=payload).status_code == 422
    assert service.receipts.list("run-1") == []


def test_an_unknown_run(service: Service) -> None:
    """003-20: 404 before anything is reserved; once the run is there, the same id is handled."""
    FINDINGS["run-9"] = []
    assert service.post(run_id="run-9").status_code == 404
    assert service.receipts.list("run-9") == []
    with service.engine.begin() as db:
        db.execute(text("INSERT INTO runs (id, status) VALUES ('run-9', 'running')"))
    assert service.post(run_id="run-9").status_code == 200


def race(service: Service) -> tuple[Response, Response]:
    """A delivery while another one is being handled, and the other one's response."""
    entered, leave = Event(), Event()
    process, replies = service.process, []

    def slow(callback: Callback) -> None:
        entered.set()
        assert leave.wait(30)
        process(callback)

    service.process = slow  # type: ignore[method-assign]  # to wait in the middle
    first = Thread(target=lambda: replies.append(service.post()))
    first.start()
    assert entered.wait(30)
    second = service.post()
    leave.set()
    first.join()
    return second, replies[0]


def test_the_loser_of_a_race(service: Service) -> None:
    """003-21, 003-24: one handles it.  Ours tells the other one to come again: the winner may die yet."""
    loser, winner = race(service)
    assert (loser.status_code, winner.status_code) == (503, 200)
    assert int(loser.headers["Retry-After"]) >= 1
    assert service.downloads == 1
    assert service.post().json()["idempotent_replayed"] is True


def test_the_loser_of_a_race_as_the_original(service: Service) -> None:
    """003-24: `in_progress="acknowledge"` responds as the original did."""
    received = receipts(service.guard, source="jobs", in_progress="acknowledge")
    service.receipts.callback = received.callback
    loser, winner = race(service)
    assert (loser.status_code, winner.status_code) == (200, 200)
    assert loser.json()["message"] == "Callback already processed"
    assert service.downloads == 1


def test_a_duplicate_is_told_three_things(service: Service) -> None:
    """003-22, 003-23: 200, and when the original was received, in ISO 8601."""
    service.post()
    reply = service.post()
    assert reply.status_code == 200
    assert set(reply.json()) == {"message", "idempotent_replayed", "original_received_at"}
    assert reply.json()["message"] == "Callback already processed"
    [receipt] = service.receipts.list("run-1")
    assert datetime.fromisoformat(reply.json()["original_received_at"]) == receipt.received_at


def test_without_an_id(service: Service) -> None:
    """003-26, 003-34: handled as always, each time; jobs that echo no id go on working."""
    old = {name: value for name, value in PAYLOAD.items() if name != "callback_id"}
    for payload in (old, {**old, "callback_id": None}):
        assert service.client.post("/callbacks", json=payload).json() == {"message": "processed"}
    assert service.downloads == 2
    assert service.receipts.list("run-1") == []


def test_the_trail_of_deliveries(service: Service) -> None:
    """003-28: how often, and when."""
    for _ in range(3):
        service.post()
    service.guard.runtime.leases.close()
    [receipt] = service.receipts.list("run-1")
    assert (receipt.deliveries, len(receipt.delivered_at)) == (3, 2)
    assert receipt.received_at <= receipt.delivered_at[0] + timedelta(seconds=1)


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def handled(received: Receipts[dict[str, str]]) -> bool:
    """Whether a delivery is handled, and not a duplicate."""
    return not received.handle({**PAYLOAD}).duplicate


@pytest.mark.parametrize(("said", "days"), [(None, 30), ("7", 7), ("0.5", 0.5)])
def test_receipts_are_cleaned_up(said: str | None, days: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """003-29, 003-30: after 30 days, or as long as the environment says."""
    if said is not None:
        monkeypatch.setenv("CALLBACK_RECEIPT_TTL_DAYS", said)
    clock = Clock()
    guard = Guard(MemoryStore(clock), profile="job-callbacks")
    received = receipts(guard, source="jobs")
    received.handler(lambda event: None)
    assert handled(received)
    clock.now += days * 86400 - 1
    assert not handled(received)
    admin = guard.store.open_admin()
    assert admin.purge(10, door="callback").records == 0
    clock.now += 2
    assert admin.purge(10, door="request").records == 0
    assert admin.purge(10, door="callback").records == 1
    assert handled(received)
    guard.close()


@pytest.mark.parametrize("said", ["", "a month", "0", "-3"])
def test_a_wrong_retention(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named with what was found and what was expected."""
    monkeypatch.setenv("CALLBACK_RECEIPT_TTL_DAYS", said)
    with pytest.raises(ConfigurationError, match="CALLBACK_RECEIPT_TTL_DAYS") as raised:
        Guard("memory:", profile="job-callbacks")
    assert "a number of days" in str(raised.value)


def test_the_rate_of_duplicates(service: Service) -> None:
    """003-31: by source, from the store; and the time to handle."""
    for id in ("c-1", "c-1", "c-1", "c-2"):
        service.post(callback_id=id)
    service.guard.runtime.leases.close()
    admin = service.guard.store.open_admin()
    found = admin.statistics().by_source["jobs"]
    admin.close()
    assert (found.events, found.deliveries, found.handled) == (2, 4, 2)
    assert found.seconds is not None
    assert found.longest is not None
    assert 0 <= found.seconds <= found.longest
    assert {(each.verdict, each.source): n for each, n in service.guard.counts().items()} == {
        ("completed", "jobs"): 2,
        ("replayed", "jobs"): 2,
    }


def test_a_callback_is_not_lost_with_its_worker(tmp_path: Path) -> None:
    """The hole of the original: a receipt that is reserved before processing acknowledges what was lost.

    There is no option for that: only what is being handled may be acknowledged, and only while it is.
    """
    clock = Clock()
    guard = Guard(MemoryStore(clock), profile="job-callbacks")
    for in_progress in ("refuse", "acknowledge"):
        received = receipts(guard, source=in_progress, in_progress=in_progress)
        with pytest.raises(SystemExit), received.handling(PAYLOAD):
            raise SystemExit  # as far as a test can be killed
        clock.now += 31
        runs: list[str] = []
        with received.handling(PAYLOAD):
            runs.append("handled")
        assert runs == ["handled"]
    guard.close()


def test_what_is_stored_can_be_read_by_people(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    """003-28: the command line shows run, source and deliveries."""
    service.post()
    [record] = service.guard.store.open_admin().export(door="callback")
    assert (record.key, record.action, record.target) == ("c-1", "jobs", "run-1")
    assert json.dumps(record.details)
