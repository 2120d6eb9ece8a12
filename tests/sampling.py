"""What runs in `make test-all` only, because it differs from a test of `make test` by store or driver alone.

`docs/decisions/README.md` argues for it.  The rules are here and not at the tests, so that what is left out
can be read in one place; `tests/adapters/sampling.py` has those of the adapters' suite.  What is the only one
of its kind stays in `make test`, however slow it is.  More of the same, by number, is marked
`pytest.mark.full` where it stands.
"""

from typing import NamedTuple

import pytest

from retrysafe.profiles import PROFILES
from tests.any_store import ON_SERVERS


class Rule(NamedTuple):
    where: str
    """How the ids of the tests begin."""
    case: str
    """What their parameters contain; all of them, if it is empty."""
    why: str
    but: str = ""
    """What the id of a test contains that stays in `make test` all the same."""

    def matches(self, test: str) -> bool:
        name, _, case = test.partition("[")
        if self.but and self.but in test:
            return False
        return name.startswith(self.where) and self.case in case


_SAVEPOINTS = (
    "its savepoints are real ones, as SQLite's are, and its server is psycopg's; "
    "what is its own is tried by test_first_savepoint.py"
)
_TRANSACTIONS = "tests/transactions/"
_CRASHES = "tests/faults/test_crashes.py::"

_OUTAGES = "tests/faults/test_outages.py::"
_DEMO = "tests/demo/"
_MOMENT = "it differs by the moment at which it is pressed"
_PROFILE = "a profile is wire and policy: each is tried on ASGI, and each adapter by default"
_DJANGO = "test_wrong_results.py and test_rest_framework_databases.py try transactions on both databases"
_CLOCK = "time is the store's; the adapter has no part in it"
_REPORTED = "one broken server shows that the demo reports it; the others differ by how it is broken"
_KEEPER = "leases are renewed by a thread of the process, whichever its adapter: tried on ASGI and WSGI"
_SECOND_CLAIM = "the claim is the same statement in both modes, and is refused before there is a transaction"
_BUILT_ON = "who takes over is decided by the store; ASGI, WSGI and Django's views in threads try it"
_SYNC_VIEWS = "with transactions they are the blocking views of TestTransactions, under another server"
_ONE_CHECK = "the jobs differ by what they compute"
_SERVERS_SIDE = "what PostgreSQL makes different is tried on ASGI; the adapter itself on SQLite"
_BY_KIND = "it is tried with one blocking driver and one asynchronous one"
_ON_SQLITE = "every trap is tried on SQLite; one for each store shows that its fences and leases do the same"
_KILLED_AT = "test_in_between[{}-hold-kill after Effect]"
_FROZEN_AT = "test_overtaken[{}-stop before Finish]"
_LEASE_MODE = (
    "test_flask.py::TestThreads",
    "test_fastapi.py::TestOneProcess",
    "test_django.py::TestThreads",
    "test_django.py::TestAsync",
)
_TX_MODE = (
    "test_flask.py::TestTransactions",
    "test_fastapi.py::TestTransactions",
    "test_django.py::TestTransactions",
    "test_django.py::TestAsyncTransactions",
)

RULES = (
    Rule(_TRANSACTIONS + "test_misuse.py", "pg8000", _SAVEPOINTS),
    Rule(_TRANSACTIONS + "test_several_sessions.py", "pg8000", _SAVEPOINTS),
    Rule(_TRANSACTIONS + "test_random_programs.py", "pg8000", _SAVEPOINTS),
    Rule(_TRANSACTIONS + "test_past_sqlalchemy.py", "pg8000", _SAVEPOINTS),
    Rule(_TRANSACTIONS + "test_semantics.py", "Session, pg8000", _SAVEPOINTS),
    *(
        Rule(
            _TRANSACTIONS + "test_semantics.py",
            ledger,
            "MariaDB is tried by PyMySQL and AsyncSession, asyncmy",
        )
        for ledger in (
            "Session, pymysql",
            "Core, pymysql",
            "mysqlconnector",
            "aiomysql",
            "async Core, asyncmy",
        )
    ),
    Rule(_TRANSACTIONS + "test_mariadb.py", "core", "a session is a Core connection with more around it"),
    Rule(_TRANSACTIONS + "test_semantics.py", "Core, psycopg", "Core is tried on SQLite, psycopg by Session"),
    Rule(_TRANSACTIONS + "test_semantics.py", "Core, asyncpg", "Core is tried on SQLite, asyncpg by Session"),
    Rule(_TRANSACTIONS + "test_semantics.py", "AsyncSession, psycopg", "AsyncSession is tried with asyncpg"),
    Rule(_CRASHES + "test_kills_and_freezes_on_postgresql", "hold", "the mode is tried on SQLite"),
    Rule(_CRASHES + "test_cuts_on_postgresql", "psycopg async", "it differs by the driver"),
    Rule("tests/faults/test_frozen_inside.py", "psycopg async", "it differs by the driver"),
    Rule("tests/faults/test_frozen_inside.py", "mariadb, sqlalchemy", "it differs by the driver"),
    *(
        Rule("tests/stores/test_look_alikes.py::test_a_record_has", door, "doors are stored alike")
        for door in ("request", "operation")
    ),
    Rule("tests/callbacks/test_any_store.py::", "memory", "test_worker.py and test_handling.py try it there"),
    Rule("tests/stores/test_from_engine_fork.py", "pg8000", "it differs by the driver"),
    Rule("tests/stores/test_batches.py::test_256", "pg8000", "it differs by the driver"),
    Rule("tests/stores/test_postgresql_processes.py::TestProcesses", "spawn", "it is tried on SQLite"),
    Rule("tests/testing/test_mariadb.py::test_it_does_not_outlive", "", "it is tried on PostgreSQL"),
    Rule("examples/agent_platform/tests/test_storm.py::test_storm", "postgresql", "it differs by the store"),
    Rule("examples/orders/tests/test_orders.py::test_shop", "sqlite", "it differs by the store"),
    Rule("examples/orders/tests/test_orders.py::test_shop", "mariadb", "it differs by the store"),
    Rule("examples/agent_platform/tests/test_storm.py::test_storm", "mariadb", "it differs by the store"),
    Rule("examples/erp/tests/test_", "postgresql", "it differs by the store"),
    Rule("examples/erp/tests/test_", "mariadb", "it differs by the store"),
    Rule("tests/cli/test_postgresql.py::test_the_same_", "", "it differs by the store"),
    Rule("tests/cli/test_any_store.py::test_the_same_", "", "test_every_command is the short form of it"),
    Rule("tests/mcp/test_over_stdio.py::test_a_server_that_is_killed", "lowlevel", "mcp is built on it"),
    Rule("tests/mcp/test_over_stdio.py::test_a_server_that_is_killed", "fastmcp", "records outlive it alike"),
    Rule(_TRANSACTIONS + "test_silence.py", "pg8000", "the socket is shut down alike for every driver"),
    Rule(_OUTAGES + "test_black_hole_at_the_claim", "tx", "the claim is the same statement in both modes"),
    Rule(_OUTAGES + "test_all_connections_in_use", "tx", "the store has the same connections in both"),
    Rule("tests/stores/test_from_engine_drivers.py::test_a_frozen", "pg8000", "it differs by the driver"),
    Rule("tests/stores/test_from_engine_drivers.py::test_a_store_that", "pg8000", "it differs by the driver"),
    Rule(_OUTAGES + "test_black_hole_at_the_claim", "the server", "to a client both are silent alike"),
    Rule(_OUTAGES + "test_killed_and_restarted_under_load", "tx", "test_crashes.py does so in transactions"),
    Rule(_CRASHES + "test_kills_and_freezes_on_sqlite", "retry", "the mode is tried on PostgreSQL"),
    Rule(_CRASHES + "test_cuts_excuse", "", "it tries the judge of the crash harness, as tests/tools do"),
    Rule("tests/adapters/test_transactions.py::TestAsgiOnSqlite::test_a_wrong_clock", "", _CLOCK),
    Rule("tests/adapters/test_wsgi.py::TestThreads::test_a_wrong_clock", "", _CLOCK),
    Rule("tests/adapters/test_django.py::TestThreads::test_a_wrong_clock", "", _CLOCK),
    Rule("tests/adapters/test_django.py::TestAsync::test_a_wrong_clock", "", _CLOCK),
    Rule("tests/adapters/test_fastapi.py::TestOneProcess::test_a_wrong_clock", "", _CLOCK),
    Rule("tests/adapters/test_flask.py::TestThreads::test_a_wrong_clock", "", _CLOCK),
    Rule("tests/django/test_celery.py::", "sqlite", "it differs by the store"),
    Rule("tests/django/test_callbacks_processes.py::", "postgresql", "it differs by the store"),
    *(
        Rule(f"tests/django/{file}.py::", "postgresql", _DJANGO)
        for file in ("test_callbacks", "test_ninja", "test_rest_framework", "test_rest_framework_errors")
    ),
    *(
        Rule(f"tests/django/{file}.py::", "mariadb", _DJANGO)
        for file in (
            "test_admin",
            "test_assertions",
            "test_callbacks",
            "test_callbacks_test_case",
            "test_commands",
            "test_middleware",
            "test_ninja",
            "test_operations",
            "test_rest_framework",
            "test_rest_framework_bodies",
            "test_rest_framework_databases",
            "test_rest_framework_errors",
            "test_test_tools",
            "test_validation_api",
        )
    ),
    Rule("tests/django/test_admin_in_browser.py::test_every_page_fits", "dark", "it differs by its colours"),
    *(
        Rule(f"tests/adapters/{where}::test_users_share_nothing", profile, _PROFILE)
        for where in (
            "test_django.py::TestThreads",
            "test_django.py::TestAsync",
            "test_fastapi.py::TestOneProcess",
            "test_flask.py::TestThreads",
            "test_wsgi.py::TestThreads",
            "test_transactions.py::TestAsgiOnSqlite",
        )
        for profile in PROFILES
    ),
    *(
        Rule(f"tests/adapters/{where}::{name}", "", _KEEPER)
        for where in _LEASE_MODE
        for name in ("test_a_running_request_does_not_expire", "test_a_handler_outlives_its_lease")
    ),
    *(Rule(f"tests/adapters/{where}::test_a_handler_outlives_its_lease", "", _KEEPER) for where in _TX_MODE),
    *(
        Rule(f"tests/adapters/{where}::test_at_the_claim", "", _SECOND_CLAIM)
        for where in ("test_transactions.py::TestWsgiOnSqlite", *_TX_MODE)
    ),
    *(
        Rule(f"tests/adapters/{where}::{name}", "", _BUILT_ON)
        for where in (
            "test_flask.py::TestThreads",
            "test_fastapi.py::TestOneProcess",
            "test_django.py::TestAsync",
        )
        for name in ("test_killed_and_held", "test_frozen_and_held", "test_one_takes_over")
    ),
    *(
        Rule(f"tests/adapters/test_django.py::TestAsyncTransactions::{name}", "", _SYNC_VIEWS)
        for name in (
            "test_killed_and_taken_over",
            "test_killed_by_itself_time_and_again",
            "test_one_takes_over",
            "test_killed_before_the_rollback",
            "test_frozen_in_its_transaction",
            "test_frozen_and_overtaken",
        )
    ),
    Rule("examples/validation_service/tests/test_service.py::test_a_job_that_is_killed", "range", _ONE_CHECK),
    Rule("tests/stores/test_batches.py::test_256", "asyncpg", "it differs by the driver"),
    Rule("tests/mcp/test_over_stdio.py::test_a_retried_call", "lowlevel", "mcp is built on it"),
    Rule(_OUTAGES + "test_black_hole_at_the_end", "MariaDB-tx", "it is tried in both modes on PostgreSQL"),
    Rule(_OUTAGES + "test_refused", "MariaDB-tx", "the claim is the same statement in both modes"),
    *(
        Rule(f"tests/adapters/{where}::{name}", "", _BUILT_ON)
        for where in ("test_flask.py::TestTransactions", "test_fastapi.py::TestTransactions")
        for name in (
            "test_killed_by_itself_time_and_again",
            "test_one_takes_over",
            "test_killed_before_the_rollback",
            "test_frozen_in_its_transaction",
        )
    ),
    *(
        Rule(f"tests/adapters/{where}::test_killed_and_taken_over", "", _SERVERS_SIDE)
        for where in (
            "test_flask.py::TestPostgres",
            "test_fastapi.py::TestPostgres",
            "test_django.py::TestAsyncOnPostgres",
        )
    ),
    *(
        Rule(f"tests/adapters/{where}::test_killed_before_the_commit", "", _SERVERS_SIDE)
        for where in (
            "test_flask.py::TestTransactionsOnPostgres",
            "test_fastapi.py::TestTransactionsOnPostgres",
            "test_django.py::TestAsyncTransactionsOnPostgres",
        )
    ),
    *(
        Rule(f"tests/adapters/{where}::test_a_hundred_at_once", "wait", "waiting is tried on SQLite")
        for where in (
            "test_asgi.py::TestPostgres",
            "test_flask.py::TestPostgres",
            "test_fastapi.py::TestPostgres",
            "test_django.py::TestPostgres",
            "test_django.py::TestAsyncOnPostgres",
            "test_transactions.py::TestAsgiOnPostgres",
            "test_flask.py::TestTransactionsOnPostgres",
            "test_fastapi.py::TestTransactionsOnPostgres",
            "test_django.py::TestAsyncTransactionsOnPostgres",
            "test_flask.py::TestSync",
            "test_django.py::TestAsyncInThree",
        )
    ),
    Rule(_OUTAGES + "test_black_hole", "Valkey", "test_asgi.py::TestValkeyFrozen tries it over sockets"),
    Rule(_OUTAGES + "test_black_hole", "MariaDB-lease", "it is tried in transactions, and on PostgreSQL"),
    Rule(
        _OUTAGES + "test_all_connections_in_use", "MariaDB", "one that waits is tried as one that is silent"
    ),
    Rule(
        _OUTAGES + "test_down_from_the_handlers_end_on",
        "MariaDB",
        "test_asgi.py::TestMariaDB.test_at_the_end",
    ),
    Rule(
        _OUTAGES + "test_down_from_the_handlers_end_on", "Valkey", "test_asgi.py::TestValkey.test_at_the_end"
    ),
    Rule(_OUTAGES + "test_all_connections_in_use", "Valkey", "one that waits is tried as one that is silent"),
    *(
        rule
        for store in ON_SERVERS
        for rule in (
            Rule(
                "tests/faults/test_races.py::test_purge", f"failures-{store}", "the race is tried on SQLite"
            ),
            Rule("tests/faults/test_kill.py::", store, _ON_SQLITE, _KILLED_AT.format(store)),
            Rule("tests/faults/test_freeze.py::", store, _ON_SQLITE, _FROZEN_AT.format(store)),
        )
    ),
    *(
        Rule(_TRANSACTIONS + "test_one_round_trip.py::test_a_record_that_is_locked", case, _BY_KIND)
        for case in ("AsyncSession]", "Session]")
    ),
    Rule(_TRANSACTIONS + "test_silence.py", "Session, psycopg", _BY_KIND),
    Rule("tests/cli/test_work.py::test_a_signal_ends_it", "2-", "both signals have one handler"),
    Rule("tests/django/test_celery.py::test_sent_after_the_commit", "postgresql-django", _BY_KIND),
    Rule("tests/stores/test_mysql.py::TestMySQL::", "blocking", "the statements are those of the other half"),
    Rule("tests/stores/test_batches.py::", "threads-mariadb", "it is tried with coroutines"),
    Rule("tests/stores/test_batches.py::test_256", "mariadb-threads", "it is tried with coroutines"),
    Rule("tests/testing/test_stores_by_address.py::test_postgresql", "", "it is tried on SQLite"),
    Rule(_DEMO + "test_demo.py::test_its_picture", "", "the same run, drawn"),
    Rule(_DEMO + "test_demo.py::test_on_a_terminal", "", "the same run, with a bar"),
    Rule(_DEMO + "test_signals.py::test_ctrl_c", "with", _MOMENT),
    Rule(_DEMO + "test_signals.py::test_ctrl_c", "restarted", _MOMENT),
    Rule(_DEMO + "test_signals.py::test_other_signals", "-1]", "SIGHUP is handled as SIGTERM is"),
    Rule(_DEMO + "test_sabotage.py", "unguarded", "the ledger's tests show what is reported"),
    Rule(_DEMO + "test_sabotage.py", "lossy", _REPORTED),
    Rule(_DEMO + "test_sabotage.py", "wrong_receipt", _REPORTED),
    Rule(_DEMO + "test_sabotage.py", "repeatable", _REPORTED),
    Rule(_DEMO + "test_serve.py::test_the_commands_work", "curl", "the stand-in takes the same commands"),
)


_WHERE = tuple(rule.where for rule in RULES)
"""To be asked all at once: there are thousands of tests, most of them in no rule's file."""


def is_left_out(test: str) -> bool:
    """Whether a rule leaves it to `make test-all`."""
    return test.startswith(_WHERE) and any(rule.matches(test) for rule in RULES)


def leave_out(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """What is to be run in `make test`, and what is not."""
    run: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        full = item.get_closest_marker("full") or is_left_out(item.nodeid)
        (left_out if full else run).append(item)
    return run, left_out


def check_rules(items: list[pytest.Item]) -> None:
    """A rule for a test that has another name now would leave nothing out, and nothing would say so."""
    tests = [item.nodeid for item in items if item.nodeid.startswith(_WHERE)]
    for rule in RULES:
        if not any(rule.matches(test) for test in tests):
            raise pytest.UsageError(
                f"tests/sampling.py: a rule for {rule.where!r} with {rule.case!r} matches no test: "
                "correct its names, or remove it"
            )
