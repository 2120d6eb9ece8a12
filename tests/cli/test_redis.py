"""What is its own to Redis and Valkey: a store that is armed, and can lose its records without a word."""

from retrysafe.testing.valkey import ValkeyServer
from tests.cli.terminal import run


def test_a_store_without_its_sentinel(valkey: ValkeyServer) -> None:
    """Exit code 3, what has happened and what to do about it; `migrate` does it, and says so."""
    url = valkey.new_database()
    for command in ("ls", "stats", "audit", "purge"):
        done = run(command, store=url)
        assert (done.code, done.out) == (3, ""), (command, done)
        assert "retrysafe migrate" in done.err
        assert "Traceback" not in done.err
    assert "armed" in run("migrate", store=url).out
    assert run("ls", store=url).code == 0


def test_there_are_no_indexes(valkey: ValkeyServer) -> None:
    """An option that would do nothing is refused."""
    done = run("migrate", "--index", "scope", store=valkey.new_database())
    assert (done.code, done.out) == (2, "")
    assert "--index is for tables, and this store has none" in done.err
