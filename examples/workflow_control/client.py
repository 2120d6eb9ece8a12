"""A client of the control API that retries as it should: one key for one intent, however often it is sent."""

import time
import uuid
from types import TracebackType
from typing import Any, Self

import httpx


class Unsettled(Exception):
    """It is not known what became of an action, and retrying did not help."""


class ControlClient:
    """Starts, cancels, resumes and forks workflows."""

    first_pause, longest_pause = 0.05, 1.0
    patience = 90.0
    """Seconds until it gives up."""

    def __init__(self, url: str, token: str, transport: httpx.BaseTransport | None = None) -> None:
        self._http = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, transport=transport, timeout=30.0
        )
        self.replays = 0
        """Responses that were of an earlier attempt."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def start(self, workflow: str, **arguments: Any) -> str:
        """The id of the new workflow."""
        done = self._act("/workflows", {"workflow": workflow, "arguments": arguments})
        return str(done["workflow_id"])

    def cancel(self, workflow_id: str) -> str:
        """The workflow's status then."""
        return str(self._act(f"/workflows/{workflow_id}/cancel", {})["status"])

    def resume(self, workflow_id: str) -> str:
        return str(self._act(f"/workflows/{workflow_id}/resume", {})["status"])

    def fork(self, workflow_id: str, start_step: int) -> str:
        """The id of the copy."""
        return str(self._act(f"/workflows/{workflow_id}/fork", {"start_step": start_step})["new_workflow_id"])

    def new_key(self) -> str:
        return str(uuid.uuid4())

    def retry_key(self, key: str) -> str:
        """The key of the next attempt: the same."""
        return key

    def _act(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        key, pause, until = self.new_key(), self.first_pause, time.monotonic() + self.patience
        while time.monotonic() < until:
            try:
                response = self._http.post(path, json=body, headers={"Idempotency-Key": key})
            except httpx.TransportError:
                pass  # it may have been done, or not: the same key finds out
            else:
                if response.is_success:
                    done: dict[str, Any] = response.json()
                    self.replays += bool(done["idempotency_replayed"])
                    return done
                if response.headers.get("X-Should-Retry") != "true":
                    raise Unsettled(f"{path}: {response.status_code} {response.text}")
                pause = max(pause, float(response.headers.get("Retry-After-Ms", 0)) / 1000)
            time.sleep(min(pause, self.longest_pause))
            pause, key = pause * 2, self.retry_key(key)
        raise Unsettled(f"{path}: no response within {self.patience:g} s")
