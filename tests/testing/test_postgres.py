"""The PostgreSQL server that tests start, kill and start again."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Timer

import psycopg
import pytest

from retrysafe.testing.adapters.client import until
from retrysafe.testing.postgres import PostgresServer


def test_it_starts_although_a_child_of_the_one_before_is_still_about() -> None:
    """On a busy machine, a process that was killed takes a moment to be gone, and has the shared memory."""
    with PostgresServer() as server, psycopg.connect(server.url("postgres")) as connection:
        child = connection.info.backend_pid
        os.kill(child, signal.SIGSTOP)
        gone = Timer(1.0, os.kill, (child, signal.SIGKILL))
        try:
            os.kill(server.pid, signal.SIGKILL)
            assert server._process is not None
            server._process.wait()
            gone.start()
            server.start()
        finally:
            gone.join()
        assert "pre-existing shared memory block" in server.log
        with psycopg.connect(server.url("postgres")) as another:
            assert another.execute("SELECT 1").fetchone() == (1,)


_OWNER = """
import sys
from retrysafe.testing.postgres import PostgresServer
server = PostgresServer(fsync="off")
if "frozen" in sys.argv:
    server.freeze()
print(server.log_file.parent, server.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("state", ["running", "frozen"])
def test_it_does_not_outlive_its_owner(state: str) -> None:
    """A test run that is killed leaves neither a server nor its folder."""
    command = [sys.executable, "-c", _OWNER, state]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        folder, pid = owner.stdout.readline().split()
        assert Path(folder, "data").is_dir()
        owner.kill()
    until(lambda: not Path(folder).exists() and not Path(f"/proc/{pid}").exists())
