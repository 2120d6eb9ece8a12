"""The same mistakes in MySQL's statements, and in how a batch is run there.

The simulator does not run them: each is caught by a test on a real server.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from retrysafe.stores.queue import Row
from retrysafe.stores.sql import statements
from retrysafe.stores.sql.mysql import rows, texts
from tools.planted.bug import REASONED, LeftToTests, Plant, patching, together
from tools.planted.sql import rewriting

_SUITE = "tests/stores/test_mysql.py::TestMySQL::"

_KNOWN = statements.load("mysql")
_EXPIRED, _NOW = _KNOWN["expired"], _KNOWN["now"]
_OWN = "(record.id, record.token) IN (:pairs) AND record.state = 'in_progress'"
_TOKEN = " AND record.token = :token"
_RUNNING = " AND record.state = 'in_progress'"
_LEASE = f"COALESCE(record.lease_until, record.expires_at) <= {_NOW}"


@contextmanager
def _taking_statements_apart_anew() -> Generator[None]:
    texts.texts.cache_clear()
    try:
        yield
    finally:
        texts.texts.cache_clear()


def in_statement(name: str, old: str, new: str) -> Plant:
    return together(_taking_statements_apart_anew, rewriting(old, new, name, dialect="mysql"))


Reserved = Callable[[Row], tuple[bytes, Sequence[Row] | None]]


def _counts_rows(_: Reserved) -> Reserved:
    """As with CLIENT.FOUND_ROWS: an insert that met a record reports one row, like one that made it."""
    return lambda row: (row[0], [(1,)])  # type: ignore[return-value]


_THIRD = """;
INSERT INTO retrysafe_records (
    id, version, token, fingerprint, state, mode, attempt, checkpointed, door, scope, action, target,
    request_id, created_at, updated_at, completed_at, expires_at, held_until, details, retention_from,
    deliveries, omitted, status, headers, body
)
SELECT
    :id, 1, :token, x'', :state, 'lease', 1, 0, 'request', '[]', '', '', '',
    UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL 1 DAY, UTC_TIMESTAMP(6),
    '[]', 'creation', 1, 0, :status, :headers, :body
FROM (:rows) AS `each`
ON DUPLICATE KEY UPDATE id = retrysafe_records.id"""

TESTED = (
    LeftToTests(
        "MySQL: finish does not compare the token",
        "pikkujs/pikku#1742: a stale worker overwrites its successor's result",
        f"{_SUITE}test_a_stranger_finishes_nothing",
        together(
            in_statement("finish", "(record.id, record.token) IN (:pairs) AND ", ""),
            in_statement("finish", "record.token = :token AND ", ""),
        ),
    ),
    LeftToTests(
        "MySQL: finish does not compare the state",
        "the callback receipts of job-callbacks are saved over whatever is there",
        f"{_SUITE}test_an_outcome_is_final",
        in_statement("finish", _RUNNING, ""),
    ),
    LeftToTests(
        "MySQL: an outcome that is stored late has expired",
        REASONED,
        f"{_SUITE}test_a_late_outcome_is_seen_for_its_retention",
        in_statement("finish", f"THEN {_KNOWN['retention_from_now']}", "THEN record.expires_at"),
    ),
    LeftToTests(
        "MySQL: finish does not recognise itself",
        REASONED,
        f"{_SUITE}test_saying_it_twice_is_saying_it_once",
        in_statement("outcome_is_stored", "WHERE id =", "WHERE FALSE AND id ="),
    ),
    LeftToTests(
        "MySQL: a batch of completions inserts what is not there",
        REASONED,
        f"{_SUITE}test_nothing_is_finished_that_was_not_begun",
        in_statement(
            "finish",
            "WHERE record.token = :token AND record.state = 'in_progress'",
            f"WHERE record.token = :token AND record.state = 'in_progress'{_THIRD}",
        ),
    ),
    LeftToTests(
        "MySQL: affected rows are counted, and the loser reports one like the winner",
        "our own measurement: with CLIENT.FOUND_ROWS, which SQLAlchemy and Django set, both report one row",
        f"{_SUITE}test_a_second_claim_is_told_of_the_first",
        patching(rows, "reserved", _counts_rows),
    ),
    LeftToTests(
        "MySQL: reserve takes any running record for its own",
        "fastidempotent 0.1.0 and idemptx 0.2.2 have locks without an owner",
        f"{_SUITE}test_a_second_claim_is_told_of_the_first",
        in_statement("reserve", _OWN, "record.state = 'in_progress'"),
    ),
    LeftToTests(
        "MySQL: reserve goes by the expiry alone, and not by a live lease",
        "agents: DELETE … WHERE created_at < NOW() - INTERVAL '24 hours'",
        f"{_SUITE}test_no_record_expires_under_a_live_lease",
        together(
            in_statement("reserve", _EXPIRED, f"record.expires_at <= {_NOW}"),
            in_statement("replace_expired", _EXPIRED, f"record.expires_at <= {_NOW}"),
        ),
    ),
    LeftToTests(
        "MySQL: reserve leaves the expiry of what has expired",
        REASONED,
        f"{_SUITE}test_a_fresh_record_keeps_nothing_of_the_expired_one",
        in_statement("replace_expired", f"    expires_at = {_KNOWN['retention_from_now']},\n", ""),
    ),
    LeftToTests(
        "MySQL: look finds what has expired",
        "agents: keys expire when the cleanup comes by",
        f"{_SUITE}test_an_outcome_is_found_until_it_expires",
        in_statement("look", f" AND ({_EXPIRED}) IS NOT TRUE", ""),
    ),
    LeftToTests(
        "MySQL: take_over does not compare the state",
        "our own history: enumerating schedules found a take-over that overran a failure",
        f"{_SUITE}test_an_owner_that_failed_in_the_last_moment_was_not_abandoned",
        in_statement("take_over", "    AND record.state = :state\n", ""),
    ),
    LeftToTests(
        "MySQL: take_over does not compare the token",
        "fastidempotent 0.1.0 and idemptx 0.2.2 have locks without an owner",
        f"{_SUITE}test_only_the_attempt_that_was_judged_is_replaced",
        in_statement("take_over", "    AND record.token = :previous\n", ""),
    ),
    LeftToTests(
        "MySQL: take_over does not wait for the end of a lease",
        "django-idempotency-key 1.3.0 ran 8 concurrent duplicates 8 times",
        f"{_SUITE}test_a_live_lease_is_never_taken_away",
        in_statement("take_over", f"            AND {_LEASE}\n", ""),
    ),
    LeftToTests(
        "MySQL: a missing lease is an orphan's",
        REASONED,
        f"{_SUITE}test_a_missing_lease_is_a_live_one",
        in_statement(
            "take_over",
            f"            AND {_LEASE}\n",
            f"            AND COALESCE(record.lease_until, '1970-01-01') <= {_NOW}\n",
        ),
    ),
    LeftToTests(
        "MySQL: a response that has begun to leave is run again",
        "idemgate 0.1.0 runs large and streamed requests again",
        f"{_SUITE}test_a_checkpointed_attempt_is_never_taken_over",
        in_statement("take_over", "            AND record.checkpointed = 0\n", ""),
    ),
    LeftToTests(
        "MySQL: a checkpoint does not compare the token",
        "pikkujs/pikku#1742: writes of an attempt that was taken over are taken for its successor's",
        f"{_SUITE}test_a_checkpoint_is_fenced",
        in_statement("checkpoint", _TOKEN, ""),
    ),
    LeftToTests(
        "MySQL: release does not compare the token",
        "KanishJebaMathewM/Truxify#4623: a slow request deletes the lock of its successor",
        f"{_SUITE}test_a_key_is_released_by_its_holder_only",
        together(in_statement("release", _TOKEN, ""), in_statement("release", " AND token = :token", "")),
    ),
    LeftToTests(
        "MySQL: release does not compare the state",
        "aws-powertools/powertools-lambda-typescript#5675: a completed record was deleted",
        f"{_SUITE}test_an_outcome_cannot_be_released",
        together(
            in_statement("release", _RUNNING, ""), in_statement("release", " AND state = 'in_progress'", "")
        ),
    ),
    LeftToTests(
        "MySQL: purge removes what has not expired",
        "agents: DELETE … WHERE created_at < NOW() - INTERVAL '24 hours'",
        f"{_SUITE}test_nothing_is_removed_before_its_time",
        in_statement("purge", _EXPIRED, f"record.expires_at <= {_NOW}"),
    ),
)
