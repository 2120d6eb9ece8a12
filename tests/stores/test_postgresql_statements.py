"""PostgreSQL's SQL files, as the server understands them."""

import re
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import pq

from retrysafe.stores.sql import migrations
from retrysafe.stores.sql.postgresql import wire
from retrysafe.stores.sql.statements import load
from retrysafe.testing.postgres import PostgresServer
from tests.stores.test_statements import written

FRAGMENTS = set(written("postgresql", "fragments.sql"))
STATEMENTS = sorted(set(load("postgresql")) - FRAGMENTS)
# An operator may wait, and an index would cost every request.
BY_HAND = frozenset(
    (
        "list_records totals by_door by_route by_scope verdicts verdicts_without_routes "
        "calls_by_route list_audit_entries count_unreadable count_abandoned meta"
    ).split()
)
INDEXES = ("index_request_id", "index_scope")


@pytest.fixture(scope="module")
def connection(postgres: PostgresServer) -> Iterator[psycopg.Connection[tuple[str]]]:
    url = postgres.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(migrations.source("postgresql").encode())
        for index in INDEXES:
            connection.execute(load("postgresql")[index].encode())
        yield connection
    postgres.drop_database(url)


@pytest.mark.parametrize("name", STATEMENTS)
def test_the_server_understands_it(connection: psycopg.Connection[tuple[str]], name: str) -> None:
    """Every argument has a type without being given a value, and every column comes as one that we read."""
    statement = wire.known()[name]
    prepared = connection.pgconn.prepare(name.encode(), statement.text)
    assert prepared.status == pq.ExecStatus.COMMAND_OK, prepared.error_message
    described = connection.pgconn.describe_prepared(name.encode())
    unknown = {described.ftype(column) for column in range(described.nfields)} - set(wire._READERS)
    assert unknown == set(), "numbers of types that the wire cannot read"


@pytest.mark.parametrize("name", sorted(set(STATEMENTS) - BY_HAND - set(INDEXES)))
def test_it_uses_an_index(connection: psycopg.Connection[tuple[str]], name: str) -> None:
    """Where one can be used at all: records are found by id or by expiry, tables are not walked through."""
    if connection.info.server_version < 160000:
        pytest.skip("a plan without values can be asked for since PostgreSQL 16")
    connection.execute("SET enable_seqscan = off")
    rows = connection.execute(b"EXPLAIN (GENERIC_PLAN) " + wire.known()[name].text).fetchall()
    assert not [line for (line,) in rows if "Seq Scan on retrysafe_" in line], rows


@pytest.mark.parametrize("name", sorted(load("postgresql")))
def test_a_colon_is_an_argument(name: str) -> None:
    """And nothing else, so that any driver's way to write arguments can be put in its place."""
    assert not re.search(r":(?!\w)|::|\w:", load("postgresql")[name])
