"""A platform that runs, and what tests do to it besides sending requests."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, func, orm, select, text, update

from examples.agent_platform.client import KEY, AgentClient, Identity
from examples.agent_platform.models import Intended, Token, digest
from examples.agent_platform.revoke import revoke
from examples.agent_platform.serving import Platform
from examples.services import PATIENCE
from retrysafe import Guard, scopes, stores
from retrysafe.sqlalchemy import sessionmaker


class Harness:
    """The platform of a module's tests, with the operators' end of its database."""

    def __init__(self, platform: Platform, folder: Path) -> None:
        self.platform = platform
        self._folder = folder
        self._guard = Guard(
            stores.from_engine(create_engine(platform.database)), scope=scopes.public(), effects="database"
        )
        self._session = sessionmaker(self._guard)
        self.http = httpx.Client(timeout=PATIENCE)

    def close(self) -> None:
        self.http.close()
        self._guard.close()
        self._session.kw["bind"].dispose()

    # --- requests, one by one

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.platform.port}"

    def register(self, name: str) -> Identity:
        with AgentClient(self.url) as client:
            client.register(name, f"register {name}")
        assert client.identity is not None
        return client.identity

    def log_in(self, agent: Identity) -> str:
        response = self.post("/api/auth/token", {"agent": agent.agent, "secret": agent.secret})
        token: str = response.raise_for_status().json()["token"]
        return token

    def post(
        self, path: str, document: dict[str, Any], *, token: str | None = None, key: str | None = None
    ) -> httpx.Response:
        """The same bytes as the client's: others would be another request."""
        headers = {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        if key is not None:
            headers[KEY] = key
        return self.http.post(self.url + path, content=json.dumps(document), headers=headers)

    # --- the database

    def revoke(self, agent: Identity) -> None:
        with self._session() as session:
            revoke(session, agent.agent)

    def expire(self, token: str) -> None:
        with self._session.begin() as session:
            session.execute(update(Token).where(Token.digest == digest(token)).values(expires_at=time.time()))

    def rows(self, table: type[Intended], intent: str) -> int:
        with orm.Session(self._session.kw["bind"]) as session:
            counted = session.scalar(select(func.count()).select_from(table).where(table.intent == intent))
        return counted or 0

    def records(self, key: str) -> int:
        with orm.Session(self._session.kw["bind"]) as session:
            found = session.scalar(
                text("SELECT count(*) FROM retrysafe_records WHERE key = :key"), {"key": key}
            )
        return found or 0

    # --- a request in progress

    def hold_next(self) -> None:
        """Have the next handler that stores something wait."""
        (self._folder / "hold").touch()

    def wait_until_held(self) -> None:
        wait_until((self._folder / "held").exists)

    def release(self) -> None:
        (self._folder / "held").unlink()


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, "what the test waits for does not happen"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    folder = tmp_path_factory.mktemp("platform")
    with Platform(
        f"sqlite:///{folder}/platform.db",
        folder,
        workers=1,
        program="examples.agent_platform.tests.held",
        PLATFORM_HOLD=str(folder),
    ) as platform:
        harness = Harness(platform, folder)
        yield harness
        harness.close()
