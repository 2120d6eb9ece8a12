"""A service that runs, and what tests do to it besides sending requests."""

import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import httpx
import pytest
from sqlalchemy import create_engine

from examples.gateway import Fault, Proxy, Response
from examples.services import PATIENCE
from examples.validation_service.audit import audit
from examples.validation_service.checks import Check, Readings
from examples.validation_service.client import ValidationClient
from examples.validation_service.envelopes import SOURCE
from examples.validation_service.serving import ValidationService
from retrysafe import Guard, stores
from retrysafe.callbacks import Receipt, receipts

ORGANISATION = "north"


Behaviour = Literal["pass on", "lose the request", "lose the response", "refuse"]


class Gateway(Proxy):
    """One that does as a test says, with the callbacks of all jobs."""

    def __init__(self) -> None:
        super().__init__(0, lose=0, repeat=0)
        self._does: Behaviour = "pass on"

    @contextmanager
    def doing(self, behaviour: Behaviour) -> Generator[None]:
        self._does = behaviour
        try:
            yield
        finally:
            self._does = "pass on"

    def draw(self) -> Fault:
        return Fault(False, "502 instead" if self._does == "lose the response" else None)

    def forward(self, path: str, headers: Mapping[str, str], body: bytes, *, twice: bool) -> Response | None:
        if self._does == "lose the request":
            return None
        if self._does == "refuse":
            return Response(410, [], b"")
        return super().forward(path, headers, body, twice=twice)


class Harness:
    """The service of a module's tests, with the operators' end of its database."""

    def __init__(self, service: ValidationService) -> None:
        self.service = service
        self._engine = create_engine(service.database)
        self._guard = Guard(stores.from_engine(self._engine), profile="job-callbacks")
        self.receipts = receipts(self._guard, source=SOURCE)
        self.client = ValidationClient(service.url, ORGANISATION)
        self.http = httpx.Client(
            base_url=service.url, headers={"X-Organisation": ORGANISATION}, timeout=PATIENCE
        )

    def close(self) -> None:
        self.client.close()
        self.http.close()
        self._guard.close()
        self._engine.dispose()

    def submit(self, readings: Readings, key: str) -> httpx.Response:
        document = {"name": key, "readings": list(readings)}
        return self.http.post("/runs", json=document, headers={"Idempotency-Key": key})

    def finished(self, readings: Readings) -> dict[str, Any]:
        """A run that has ended."""
        return self.client.wait(self.client.submit(str(uuid.uuid4()), readings))

    def call_back(self, run: str, of: Check, **changed: object) -> httpx.Response:
        """What the job of a check has sent, with changes, once more."""
        receipt = self.receipt(run, of)
        sent = {
            "run_id": run,
            "callback_id": receipt.id,
            "status": receipt.status,
            "result_uri": receipt.result_uri,
            "correlation_id": receipt.correlation_id,
            "check": of,
        }
        return self.http.post("/callbacks", json=sent | changed)

    def receipt(self, run: str, check: Check) -> Receipt:
        [found] = [one for one in self.received(run) if f"{run}-{check}/" in one.result_uri]
        return found

    def received(self, run: str) -> Sequence[Receipt]:
        return self.receipts.list(run)

    def wait_until_quiet(self) -> None:
        """Until no job is left, and none is to be started."""
        wait_until(lambda: not self.service.jobs() and not self.service.spooled())

    def wrong(self) -> list[str]:
        """What the audit finds."""
        return audit(self._engine).wrong


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, "what the test waits for does not happen"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with Gateway() as gateway:
        yield gateway


@pytest.fixture(scope="module")
def harness(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    folder = tmp_path_factory.mktemp("validation")
    with ValidationService(
        f"sqlite:///{folder}/validation.db",
        folder,
        gateway,
        program="examples.validation_service.tests.trapped",
    ) as service:
        harness = Harness(service)
        yield harness
        harness.close()
