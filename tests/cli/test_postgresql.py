"""The command line on PostgreSQL: the same commands, and the same output as on SQLite."""

import json
from collections.abc import Iterator, Mapping

import psycopg
import pytest

from retrysafe.testing.postgres import PostgresServer
from tests.cli.records import PostgresShop, Shop, identity
from tests.cli.same_output import WHY, assert_told_alike, stock
from tests.cli.terminal import run, shown

PASSWORD = "hunter2-hunter2"


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """One that flushes to its disk: the doctor would say so if it did not."""
    with PostgresServer() as server:
        yield server


@pytest.mark.timeout(600)  # some forty processes, one after the other, on a machine that may be busy
def test_the_same_output_as_on_sqlite(shop: Shop, bank: PostgresShop) -> None:
    """Every command, told the same story, says the same about it: lists, one record, statistics,
    interventions, what operators did, a purge."""
    ids = stock(shop)
    assert stock(bank) == ids
    shop.close()
    assert_told_alike(shop.url, bank.url, ids)


def test_what_cannot_be_done(bank: PostgresShop) -> None:
    """A record that is running, one that is not there, one that is locked: said, and nothing is changed."""
    running = bank.running("running-key-0001")
    abandoned = bank.abandoned("abandoned-key-0001")
    done = run("release", identity(running), *WHY, store=bank.url)
    assert (done.code, done.out) == (1, "")
    assert run("show", "no-such-key-at-all", store=bank.url).code == 1
    with psycopg.connect(bank.url) as other:
        other.execute("SELECT 1 FROM retrysafe_records FOR UPDATE")
        assert run("ls", store=bank.url).code == 0
        done = run("release", identity(abandoned), *WHY, store=bank.url)
    assert (done.code, done.out) == (3, "")
    assert "locked" in done.err
    assert "nothing was done" in done.err
    assert json.loads(run("audit", "--json", store=bank.url).out)["entries"] == []
    assert run("release", identity(abandoned), *WHY, "--json", store=bank.url).code == 0


def test_a_damaged_record(bank: PostgresShop) -> None:
    """It is named on stderr and hides nothing else; the doctor finds it."""
    damaged = bank.finished("completed-key-001")
    bank.finished("completed-key-002")
    bank.execute("UPDATE retrysafe_records SET version = 2 WHERE key = 'completed-key-001'")
    listed = run("ls", "--json", store=bank.url)
    assert (listed.code, len(json.loads(listed.out)["records"])) == (0, 1)
    assert f"a record is not listed: record {identity(damaged)}" in listed.err
    assert "records cannot be read" in run("doctor", store=bank.url).out


def test_migrate(database: str) -> None:
    """Makes the tables, says so, and has nothing to do the second time; before that, the others say what to
    do."""
    for command in ("ls", "stats", "audit", "purge"):
        done = run(command, store=database)
        assert (done.code, done.out) == (3, ""), command
        assert "retrysafe migrate" in done.err
    first, second = run("migrate", store=database), run("migrate", "--json", store=database)
    assert (first.code, second.code) == (0, 0)
    assert "retrysafe_records" in first.out
    assert "nothing to do" in json.loads(second.out)["done"]
    assert run("ls", store=database).code == 0
    assert "Nothing to do" in shown("migrate", store=database).text


@pytest.mark.parametrize(("version", "advice"), [(99, "upgrade retrysafe"), (0, "use the release")])
def test_another_version(bank: PostgresShop, version: int, advice: str) -> None:
    """Tables of another release are not touched: exit code 3, and what to do."""
    bank.finished("completed-key-001")
    bank.execute(f"UPDATE retrysafe_meta SET value = '{version}'")
    for command in ("migrate", "ls", "stats", "audit", "purge"):
        done = run(command, store=bank.url)
        assert (done.code, done.out) == (3, ""), command
        assert f"version {version}" in done.err
        assert advice in done.err
        assert "Traceback" not in done.err
    done = run("doctor", "--json", store=bank.url)
    wrong = [finding for finding in json.loads(done.out)["findings"] if finding["level"] == "problem"]
    assert (done.code, [finding["check"] for finding in wrong]) == (1, ["schema"])


def test_sql(database: str) -> None:
    """What it prints makes the tables as migrate does, and needs neither a store nor a driver."""
    done = run("sql", "--dialect", "postgresql")
    assert (done.code, done.err) == (0, "")
    with psycopg.connect(database) as connection:
        connection.execute(done.out.encode())
    assert "nothing to do" in json.loads(run("migrate", "--json", store=database).out)["done"]
    document = json.loads(run("sql", "--dialect", "postgresql", "--json").out)
    assert document == {"dialect": "postgresql", "sql": done.out}


@pytest.mark.parametrize("columns", [80, 140])
def test_doctor(bank: PostgresShop, columns: int) -> None:
    """A sound store is well; what waits for a person is a warning, within the width of the terminal."""
    bank.finished("completed-key-001")
    done = run("doctor", "--json", store=bank.url)
    document = json.loads(done.out)
    assert (done.code, done.err, document["ok"], document["warnings"]) == (0, "", True, 0)
    bank.abandoned()
    screen = shown("doctor", store=bank.url, columns=columns)
    assert max(map(len, screen.lines)) <= columns
    assert "✓  schema" in screen.text
    assert "!  abandoned" in screen.text


def _addresses(url: str) -> Mapping[str, str]:
    at = url.partition("@")[2]
    host = at.partition("/")[0]
    return {
        "refused": f"postgresql://clerk:{PASSWORD}@127.0.0.1:1/nowhere",
        "no such database": f"postgresql://postgres:{PASSWORD}@{host}/nowhere",
        "no such role": f"postgresql://clerk:{PASSWORD}@{at}",
        "an unknown option": f"postgresql://postgres:{PASSWORD}@{at}?pasword={PASSWORD}",
        "a bad port": f"postgresql://postgres:{PASSWORD}@127.0.0.1:port/nowhere",
        "an unescaped slash": f"postgresql://postgres:{PASSWORD}/x@127.0.0.1/nowhere",
        "a password apart": f"postgresql://{host}/nowhere?user=postgres&password={PASSWORD}",
        "for SQLAlchemy": f"postgresql+psycopg://postgres:{PASSWORD}@{at}",
        "one slash": f"postgresql:/postgres:{PASSWORD}@{at}",
    }


@pytest.mark.timeout(600)
def test_a_password_is_never_repeated(bank: PostgresShop) -> None:
    """Whatever is wrong with the address, and whatever is right: it stands in no error, finding or advice."""
    claim = bank.abandoned()
    for name, address in _addresses(bank.url).items():
        for asked in ("ls", "doctor"):
            done = run(asked, "--store", address)
            assert done.code in (1, 2, 3), (name, asked, done)
            assert PASSWORD not in done.out + done.err, (name, asked)
            assert "Traceback" not in done.err, (name, asked)
    right = bank.url.replace("postgres@", f"postgres:{PASSWORD}@")
    apart = f"{bank.url.replace('postgres@', '')}?user=postgres&password={PASSWORD}"
    for address in (right, apart):
        for command in (["show", identity(claim)], ["doctor"]):
            done = run(*command, "--store", address)
            assert done.code == 0, done
            assert PASSWORD not in done.out + done.err, command


def test_a_server_that_is_not_there() -> None:
    """Exit code 3 and where it was looked for; the doctor makes it a finding."""
    with PostgresServer() as server:
        url = server.new_database()
    done = run("ls", store=url)
    assert (done.code, done.out) == (3, "")
    assert str(server.port) in done.err
    document = json.loads(run("doctor", "--json", store=url).out)
    assert [finding["check"] for finding in document["findings"]] == ["server"]
