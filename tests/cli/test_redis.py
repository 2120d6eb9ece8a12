"""What is its own to Redis and Valkey: a store that is armed, and can lose its records without a word."""

import json
from pathlib import Path

from retrysafe.testing.valkey import ValkeyServer
from tests.cli.terminal import Screen, run


def test_a_store_without_its_sentinel(valkey: ValkeyServer) -> None:
    """Exit code 3, what has happened and what to do about it; `arm` does it, with a reason."""
    url = valkey.new_database()
    for command in ("ls", "stats", "audit", "purge"):
        done = run(command, store=url)
        assert (done.code, done.out) == (3, ""), (command, done)
        assert "retrysafe arm" in done.err
        assert "Traceback" not in done.err
    assert run("arm", "--yes", "--reason", "it is new", store=url).out == "The store is armed.\n"
    assert run("ls", store=url).code == 0
    [entry] = json.loads(run("audit", "--json", store=url).out)["entries"]
    assert (entry["act"], entry["reason"]) == ("arm", "it is new")
    assert run("arm", store=url).out == "Nothing to do: the store is armed.\n"


def test_arming_is_decided_by_a_person(valkey: ValkeyServer) -> None:
    """`migrate`, which deployments run, does not do it; `arm` wants a reason, and asks first."""
    url = valkey.new_database()
    done = run("migrate", store=url)
    assert (done.code, done.out) == (3, "")
    assert "retrysafe arm" in done.err
    for arguments in (("arm",), ("arm", "--yes"), ("arm", "--reason", "it is new")):
        assert run(*arguments, store=url).code == 2, arguments
    assert run("ls", store=url).code == 3
    screen = Screen("arm", "--reason", "it is new", store=url)
    screen.expect("RUN AGAIN")
    screen.expect("Arm the store?")
    screen.type("n\n")
    assert screen.end() == 1
    assert run("ls", store=url).code == 3


def test_a_database_is_not_armed(tmp_path: Path) -> None:
    """It knows what it has: a command that would do nothing is refused."""
    database = f"sqlite:///{tmp_path / 'keys.db'}"
    assert run("migrate", store=database).code == 0
    done = run("arm", "--yes", "--reason", "x", store=database)
    assert (done.code, done.out) == (2, "")
    assert "only a store on Redis or Valkey is armed" in done.err


def test_there_are_no_indexes(valkey: ValkeyServer) -> None:
    """An option that would do nothing is refused."""
    done = run("migrate", "--index", "scope", store=valkey.new_database())
    assert (done.code, done.out) == (2, "")
    assert "--index is for tables, and this store has none" in done.err
