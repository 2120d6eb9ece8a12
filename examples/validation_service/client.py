"""A client of the service that retries as it should: one key for one run, however often it is sent."""

import time
import uuid
from types import TracebackType
from typing import Any, Self

import httpx

from examples.validation_service.environment import WORKFLOW
from examples.validation_service.jobs.checks import Readings


class Unsettled(Exception):
    """It is not known what became of a run, and retrying did not help."""


class ValidationClient:
    first_pause, longest_pause = 0.05, 1.0
    """Seconds: the pause between two attempts doubles from one to the other."""
    look_every = 0.1
    """Seconds."""
    patience = 90.0
    """Seconds until it gives up."""

    def __init__(self, service: str, token: str, submit_to: str | None = None) -> None:
        self._http = httpx.Client(
            base_url=f"{service}/api/",
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(30.0),
        )
        self._submit_to = f"{submit_to or service}/api"
        """Where requests go that have an effect: the storm has a gateway there."""
        self._workflow: int | None = None
        self.replays = 0
        """Responses that were of an earlier attempt."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def submit(self, name: str, readings: Readings) -> str:
        """The id of the new run."""
        key, pause, until = self.new_key(), self.first_pause, time.monotonic() + self.patience
        start = f"{self._submit_to}/workflows/{self.workflow()}/start/"
        document = {"name": name, "readings": list(readings)}
        while time.monotonic() < until:
            try:
                response = self._http.post(start, json=document, headers={"Idempotency-Key": key})
            except httpx.TransportError:
                pass  # it may have been done, or not: the same key finds out
            else:
                if response.is_success:
                    self.replays += response.headers.get("Idempotent-Replayed") == "true"
                    return str(response.json()["id"])
                if response.status_code != 502 and response.headers.get("X-Should-Retry") != "true":
                    raise Unsettled(f"{name}: {response.status_code} {response.text}")
                pause = max(pause, float(response.headers.get("Retry-After-Ms", 0)) / 1000)
            time.sleep(min(pause, self.longest_pause))
            pause, key = pause * 2, self.retry_key(key)
        raise Unsettled(f"{name}: no response within {self.patience:g} s")

    def workflow(self) -> int:
        """The id of the one that is used."""
        if self._workflow is None:
            until = time.monotonic() + self.patience
            while self._workflow is None:
                try:
                    found: list[dict[str, Any]] = self._http.get("workflows/").raise_for_status().json()
                except httpx.TransportError as error:  # its worker has died; reading has no effect
                    if time.monotonic() > until:
                        raise Unsettled(f"the workflows cannot be listed: {error}") from error
                    time.sleep(self.look_every)
                else:
                    self._workflow = next(int(one["id"]) for one in found if one["name"] == WORKFLOW)
        return self._workflow

    def wait(self, run: str) -> dict[str, Any]:
        """What the service says of a run that has ended."""
        until = time.monotonic() + self.patience
        while time.monotonic() < until:
            try:
                response = self._http.get(f"runs/{run}/")
            except httpx.TransportError:
                pass  # reading has no effect: again
            else:
                found: dict[str, Any] = response.raise_for_status().json()
                if found["status"] != "running":
                    return found
            time.sleep(self.look_every)
        raise Unsettled(f"run {run} has not ended within {self.patience:g} s")

    def new_key(self) -> str:
        return str(uuid.uuid4())

    def retry_key(self, key: str) -> str:
        """The key of the next attempt: the same."""
        return key
