"""A service that runs, and what tests do to it besides sending requests.

Its models are not imported here: this process has the settings of another project of Django's.
"""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest

from examples.gateway import Fault, Proxy, Response
from examples.services import PATIENCE
from examples.validation_service.client import ValidationClient
from examples.validation_service.environment import demo_token
from examples.validation_service.jobs.checks import Check, Readings
from examples.validation_service.jobs.envelopes import SOURCE
from examples.validation_service.serving import ValidationService
from retrysafe import Guard, stores
from retrysafe.callbacks import Receipt, receipts

ROOT = Path(__file__).parents[3]
TOKEN = demo_token("north")

ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name not in ("VALIDATION_DATABASE", "VALIDATION_FILES")
}
"""Without what a developer may have set."""


def ran(
    module: str, *arguments: str, expected: int = 0, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """A command of the example, which has come to its end."""
    found = subprocess.run(
        [sys.executable, "-m", f"examples.validation_service.{module}", *arguments],
        env={**ENVIRONMENT, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == expected, found.stdout + found.stderr
    return found


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
        self._guard = Guard(stores.open(service.database.replace("+psycopg", "")), profile="job-callbacks")
        self.receipts = receipts(self._guard, source=SOURCE)
        self.client = ValidationClient(service.url, TOKEN)
        self.http = httpx.Client(
            base_url=f"{service.url}/api/", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=PATIENCE
        )

    def close(self) -> None:
        self.client.close()
        self.http.close()
        self._guard.close()

    @property
    def start(self) -> str:
        """The path of what starts a run."""
        return f"workflows/{self.client.workflow()}/start/"

    def submit(self, readings: Readings, key: str) -> httpx.Response:
        document = {"name": key, "readings": list(readings)}
        return self.http.post(self.start, json=document, headers={"Idempotency-Key": key})

    def used(self) -> int:
        """How much of its quota the organisation has used."""
        return int(self.http.get("organisation/").raise_for_status().json()["used"])

    def trap(self, place: str) -> Path:
        """Have the next run that is started fall into a trap: see `trapped.py`."""
        trap = self.service.files / place
        trap.touch()
        return trap

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
        return self.http.post("callbacks/", json=sent | changed)

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
        environment = {"VALIDATION_DATABASE": self.service.database}
        command = [sys.executable, "-m", "examples.validation_service.audit"]
        found = subprocess.run(
            command, env={**ENVIRONMENT, **environment}, cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert found.stdout, found.stderr
        return found.stdout.splitlines() if found.returncode else []


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
    with running(f"sqlite:///{folder}/validation.db", folder, gateway) as harness:
        yield harness


@contextmanager
def running(database: str, folder: Path, gateway: Gateway) -> Generator[Harness]:
    """The service with its traps."""
    program = "examples.validation_service.tests.trapped"
    with ValidationService(database, folder, gateway, program=program) as service:
        harness = Harness(service)
        try:
            yield harness
        finally:
            harness.close()
