"""The ERP under gunicorn and its card provider, as processes, and their books."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine

from examples.erp.audit import audit
from examples.erp.setup import USERS, fill
from examples.erp.tests.till import Till
from retrysafe import stores
from retrysafe.stores.admin import Query, Sighting
from retrysafe.testing.adapters.server import children

PATIENCE = 60.0
"""Seconds: far more than anything takes, on a machine that has other things to do."""

_LEASE = "1"
"""Short, so that a key whose worker was killed is soon tried again."""

TTL_HOURS = 48
"""Another one than the profile's own, to see that the environment counts."""

SECRET = "a secret of at least 16 characters"

TENANTS = {**USERS, "east": ["dee", "eva"], "west": ["dee", "flo"], "keyless": ["gil", "hal"]}
"""With some that no other test uses, and one whose tills send no keys."""


class Erp:
    """A running one."""

    def __init__(
        self,
        url: str,
        port: int,
        books: Path,
        gunicorn: "subprocess.Popen[str]",
        provider: "subprocess.Popen[str]",
    ) -> None:
        self.url = url
        self.engine: Engine = create_engine(url)
        self.store = stores.open(self.address)
        self.port = port
        self.books = books
        self._cookies: dict[tuple[str, str], str | None] = {}
        self._gunicorn = gunicorn
        self._provider = provider

    def till(self, tenant: str, user: str) -> Till:
        """One at which this user has logged in."""
        till = Till(self.port)
        till.cookie = self._cookies.get((tenant, user))
        if till.cookie is None:
            till.log_in(tenant, user)
            self._cookies[tenant, user] = till.cookie
        return till

    def audit(self) -> dict[str, list[str]]:
        return audit(self.engine, self.books)

    def workers(self) -> list[int]:
        return children(self._gunicorn.pid)

    def kill(self, worker: int) -> None:
        """At once, whatever it is doing.  gunicorn starts another one."""
        os.kill(worker, signal.SIGKILL)

    def trap(self, place: str) -> None:
        """Have the next worker kill itself that comes there: `before Commit`, `after Commit`, …"""
        self.books.with_name("trap").write_text(place)

    @contextmanager
    def silent_provider(self) -> Generator[None]:
        """As long as it is entered, the card provider does not respond."""
        self._provider.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._provider.send_signal(signal.SIGCONT)

    def command(self, *arguments: str) -> str:
        """What a command of `retrysafe` prints."""
        ran = subprocess.run(
            [sys.executable, "-m", "retrysafe", *arguments],
            env={**os.environ, "RETRYSAFE_STORE": self.address},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert ran.returncode == 0, f"retrysafe {' '.join(arguments)}: {ran.stderr}"
        return ran.stdout

    @property
    def address(self) -> str:
        """Of its records, for operators."""
        return self.url.replace("+psycopg", "").replace("+pymysql", "")

    def records(self, key: str) -> list[Sighting]:
        """Those of a key, of all its owners."""
        admin = self.store.open_admin()
        try:
            return list(admin.find(Query(key=key), 100))
        finally:
            admin.close()

    def listed(self, *arguments: str) -> list[dict[str, Any]]:
        """What `retrysafe ls` finds."""
        found = json.loads(self.command("ls", "--json", "--show-keys", "--limit", "100000", *arguments))
        records: list[dict[str, Any]] = found["records"]
        return records


@contextmanager
def running(url: str, folder: Path) -> Generator[Erp]:
    """An ERP that was just set up."""
    engine = create_engine(url)
    fill(engine, TENANTS)
    engine.dispose()
    books = folder / "provider.db"
    with (
        _started("examples.orders.provider", "--port=0", f"--books={books}", "--delay=0.02") as provider,
        socket.create_server(("127.0.0.1", 0), backlog=256) as listener,
    ):
        assert provider.stdout is not None
        # Connections wait in the listener's queue until a worker is there to accept them.
        served = ["--config=python:examples.erp.serving", f"--bind=fd://{listener.fileno()}"]
        with _started(
            "gunicorn",
            *served,
            "--log-level=warning",
            "examples.erp.tests.trapped:create_app()",
            pass_fd=listener.fileno(),
            ERP_DATABASE=url,
            ERP_PROVIDER=provider.stdout.readline().split()[-1],
            ERP_SECRET=SECRET,
            ERP_TRAP=str(books.with_name("trap")),
            ERP_LEASE=_LEASE,
            IDEMPOTENCY_TTL_HOURS=str(TTL_HOURS),
        ) as gunicorn:
            erp = Erp(url, listener.getsockname()[1], books, gunicorn, provider)
            try:
                yield erp
            finally:
                erp.engine.dispose()
                erp.store.close()


@contextmanager
def _started(
    module: str, *arguments: str, pass_fd: int | None = None, **environment: str
) -> Generator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        cwd=Path(__file__).parents[3],
        pass_fds=[] if pass_fd is None else [pass_fd],
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)
        if process.stdout is not None:
            process.stdout.close()
