"""An agent's client that retries as it should.

One key for each thing that the agent decides to do; the same key and the same bytes with every retry; a
pause that grows, or the one that the platform asks for; and an end where the platform says that a retry does
not help.
"""

import json
import random
import time
import uuid
from types import TracebackType
from typing import Any, NamedTuple, Self

import httpx

KEY = "X-Idempotency-Key"

ACCIDENTS = frozenset({408, 425, 429, 502, 503, 504})
"""Statuses of what stands in between, which say nothing about the action where no header says more."""


class Unsettled(Exception):
    """No response says what became of an action: look at the platform before anything else is done."""


class Refused(Exception):
    """The platform gives this agent no token."""


class Identity(NamedTuple):
    """What an agent has to remember, besides the keys of what it is about to do."""

    agent: int
    secret: str
    dweller: int


class AgentClient:
    first_pause, longest_pause = 0.5, 60.0
    """Seconds: the pause between two attempts doubles from one to the other."""
    patience = 3600.0
    """Seconds until it gives up: far below the 24 hours for which the platform stores responses."""

    def __init__(self, platform: str, identity: Identity | None = None) -> None:
        self._http = httpx.Client(base_url=platform, timeout=30)
        self._token = ""
        self.identity = identity

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def register(self, name: str, intent: str, key: str | None = None) -> httpx.Response:
        """Nothing authenticates the agent yet, so its key must not be guessable: a new UUID is not."""
        response = self.send("/api/auth/agent", {"name": name, "intent": intent}, key)
        if response.status_code == 201:
            found = response.json()
            self.identity = Identity(found["id"], found["secret"], found["dweller"])
        return response

    def heartbeat(self, due: str, intent: str) -> httpx.Response:
        """The heartbeat that is due at this time.

        Its key is made of what it is for: an agent that was restarted, and has forgotten that it sent one,
        sends the same key.
        """
        assert self.identity is not None, "register first"
        path = f"/api/dwellers/{self.identity.dweller}/heartbeat"
        key = uuid.uuid5(uuid.NAMESPACE_URL, f"{path}?due={due}")
        return self.send(path, {"intent": intent, "due": due}, str(key))

    def send(self, path: str, document: dict[str, Any], key: str | None = None) -> httpx.Response:
        """Do one thing: send it until there is a response to it.

        Without a key of the caller's it gets a new one.  A caller that may die meanwhile makes the key
        itself, and stores it before.
        """
        headers = {"Content-Type": "application/json", **self.key_header(key or str(uuid.uuid4()))}
        body = json.dumps(document).encode()  # once: every retry sends the same bytes
        give_up, longest = time.monotonic() + self.patience, self.first_pause
        while True:
            pause = random.uniform(0, longest)
            try:
                response = self._try(path, body, headers)
            except httpx.TransportError:
                pass  # refused, cut off or timed out: it may have been done
            else:
                if response.status_code == 401 and self.identity is not None:
                    self._token = ""  # it has expired; by the next one the key is still this agent's
                elif not _should_retry(response):
                    return response
                pause = max(pause, _asked_to_wait(response))
            if time.monotonic() + pause > give_up:
                raise Unsettled(f"POST {path} got no final response in {self.patience:g} s: {headers}")
            time.sleep(pause)
            longest = min(longest * 2, self.longest_pause)

    def key_header(self, key: str) -> dict[str, str]:
        return {KEY: key}

    def _try(self, path: str, body: bytes, headers: dict[str, str]) -> httpx.Response:
        """One attempt.  Without a token it gets one first; if that fails, the response says why."""
        if self.identity is not None and not self._token:
            login = {"agent": self.identity.agent, "secret": self.identity.secret}
            # Without a key: a token that is lost on the way does no harm.
            access = self._http.post("/api/auth/token", json=login)
            if access.status_code != 201:
                if _should_retry(access):
                    return access
                raise Refused(
                    f"agent {self.identity.agent} gets no token: {access.status_code} {access.text}"
                )
            self._token = access.json()["token"]
        if self._token:
            headers = {**headers, "Authorization": f"Bearer {self._token}"}
        return self._http.post(path, content=body, headers=headers)


def _should_retry(response: httpx.Response) -> bool:
    said = response.headers.get("X-Should-Retry")
    return said == "true" if said is not None else response.status_code in ACCIDENTS


def _asked_to_wait(response: httpx.Response) -> float:
    """Seconds, in the finer of two figures."""
    if (milliseconds := response.headers.get("Retry-After-Ms", "")).isdigit():
        return int(milliseconds) / 1000
    seconds = response.headers.get("Retry-After", "")
    return int(seconds) if seconds.isdigit() else 0
