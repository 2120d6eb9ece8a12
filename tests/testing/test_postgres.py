"""The PostgreSQL server that tests start, kill and start again."""

import os
import signal
from threading import Timer

import psycopg

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
