"""The same mistakes in PostgreSQL's statements, and in how a batch is run there.

The simulator does not run them: each is caught by a test of the store suite, on a real server.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from retrysafe.stores import queue_loop
from retrysafe.stores.queue import Call, Outcome
from retrysafe.stores.sql import schema, statements
from retrysafe.stores.sql.migrations import Migration
from retrysafe.stores.sql.postgresql import wire
from retrysafe.stores.sql.postgresql.retry import PostgresTrouble
from retrysafe.stores.sql.postgresql.session import Conversation, Session
from tools.planted.bug import REASONED, LeftToTests, Plant, patching, together
from tools.planted.queues import fails_all
from tools.planted.sql import rewriting

_SUITE = "tests/stores/test_postgresql.py::TestPostgres::"
_BATCHES = "tests/stores/test_batches.py::"
_IN_A_BATCH = f"{_BATCHES}test_a_damaged_a_locked_and_an_oversized_record_are_alone[psycopg-coroutines]"

_ONE_CALL = "tests/stores/test_postgresql_batch.py::test_fresh_taken_and_expired_in_one_batch"

_KNOWN = statements.load("postgresql")
_EXPIRED, _NOW = _KNOWN["expired"], _KNOWN["now"]
_TOKEN = "    AND record.token = CAST(:token AS bytea)\n"
_RUNNING = "    AND record.state = 'in_progress'\n"
_LEASE = f"coalesce(record.lease_until, record.expires_at) <= {_NOW}"


@contextmanager
def _reading_statements_anew() -> Generator[None]:
    wire.known.cache_clear()
    try:
        yield
    finally:
        wire.known.cache_clear()


def in_statement(name: str, old: str, new: str) -> Plant:
    return together(_reading_statements_anew, rewriting(old, new, name, dialect="postgresql"))


RunOnSession = Callable[[Session, Sequence[Call], float], Conversation[Sequence[Outcome]]]


def _takes_what_was_rolled_back_as_done(real: RunOnSession) -> RunOnSession:
    def batch(self: Session, calls: Sequence[Call], patience: float) -> Conversation[Sequence[Outcome]]:
        try:
            return (yield from real(self, calls, patience))
        except PostgresTrouble as trouble:
            if trouble.disconnected:
                raise
            return [[(1,)] for _ in calls]

    return batch


Migrations = Callable[[str], Sequence[Migration]]


def in_function(old: str, new: str) -> Plant:
    """Other words in the function that does a batch."""

    def make(real: Migrations) -> Migrations:
        def migrations(dialect: str) -> Sequence[Migration]:
            found = real(dialect)
            if dialect == "postgresql" and not any(old in each.source for each in found[2:]):
                raise LookupError(f"{old!r} is not in the function: it was rewritten")
            return [each._replace(source=each.source.replace(old, new)) for each in found]

        return migrations

    return patching(schema, "migrations", make)


TESTED = (
    LeftToTests(
        "PostgreSQL: finish does not compare the token",
        "pikkujs/pikku#1742: a stale worker overwrites its successor's result",
        f"{_SUITE}test_a_stranger_finishes_nothing",
        in_statement("finish", _TOKEN, ""),
    ),
    LeftToTests(
        "PostgreSQL: finish does not compare the state",
        "the callback receipts of job-callbacks are saved over whatever is there",
        f"{_SUITE}test_an_outcome_is_final",
        in_statement("finish", _RUNNING, ""),
    ),
    LeftToTests(
        "PostgreSQL: an outcome that is stored late has expired",
        REASONED,
        f"{_SUITE}test_a_late_outcome_is_seen_for_its_retention",
        in_statement(
            "finish_late",
            f"    expires_at = {_NOW} + CAST(:retention AS float8) * interval '1 second',\n",
            "",
        ),
    ),
    LeftToTests(
        "PostgreSQL: finish does not recognise itself",
        REASONED,
        f"{_SUITE}test_saying_it_twice_is_saying_it_once",
        in_statement("outcome_is_stored", "WHERE id =", "WHERE FALSE AND id ="),
    ),
    LeftToTests(
        "PostgreSQL: reserve replaces what is in progress",
        "fastidempotent 0.1.0 and idemptx 0.2.2 have locks without an owner",
        f"{_SUITE}test_a_second_claim_is_told_of_the_first",
        together(
            in_statement("reserve", f"AND ({_EXPIRED}) IS NOT TRUE\n", "AND record.state <> 'in_progress'\n"),
            in_statement("reserve", f"    WHERE {_EXPIRED}\n", ""),
        ),
    ),
    LeftToTests(
        "PostgreSQL: reserve goes by the expiry alone, and not by a live lease",
        "agents: DELETE … WHERE created_at < NOW() - INTERVAL '24 hours'",
        f"{_SUITE}test_no_record_expires_under_a_live_lease",
        in_statement("reserve", _EXPIRED, f"record.expires_at <= {_NOW}"),
    ),
    LeftToTests(
        "PostgreSQL: reserve leaves the expiry of what has expired",
        REASONED,
        f"{_SUITE}test_a_fresh_record_keeps_nothing_of_the_expired_one",
        in_statement("reserve", "        expires_at = excluded.expires_at,\n", ""),
    ),
    LeftToTests(
        "PostgreSQL: look finds what has expired",
        "agents: keys expire when the cleanup comes by",
        f"{_SUITE}test_an_outcome_is_found_until_it_expires",
        in_statement("look", f" AND ({_EXPIRED}) IS NOT TRUE", ""),
    ),
    LeftToTests(
        "PostgreSQL: take_over does not compare the state",
        "our own history: enumerating schedules found a take-over that overran a failure",
        f"{_SUITE}test_an_owner_that_failed_in_the_last_moment_was_not_abandoned",
        in_statement("take_over", "    AND record.state = CAST(:state AS text)\n", ""),
    ),
    LeftToTests(
        "PostgreSQL: take_over does not compare the token",
        "fastidempotent 0.1.0 and idemptx 0.2.2 have locks without an owner",
        f"{_SUITE}test_only_the_attempt_that_was_judged_is_replaced",
        in_statement("take_over", "    AND record.token = CAST(:previous AS bytea)\n", ""),
    ),
    LeftToTests(
        "PostgreSQL: take_over does not wait for the end of a lease",
        "django-idempotency-key 1.3.0 ran 8 concurrent duplicates 8 times",
        f"{_SUITE}test_a_live_lease_is_never_taken_away",
        in_statement("take_over", f"            AND {_LEASE}\n", ""),
    ),
    LeftToTests(
        "PostgreSQL: a missing lease is an orphan's",
        REASONED,
        f"{_SUITE}test_a_missing_lease_is_a_live_one",
        in_statement(
            "take_over",
            f"            AND {_LEASE}\n",
            f"            AND coalesce(record.lease_until, '-infinity') <= {_NOW}\n",
        ),
    ),
    LeftToTests(
        "PostgreSQL: a response that has begun to leave is run again",
        "idemgate 0.1.0 runs large and streamed requests again",
        f"{_SUITE}test_a_checkpointed_attempt_is_never_taken_over",
        in_statement("take_over", "            AND record.checkpointed = 0\n", ""),
    ),
    LeftToTests(
        "PostgreSQL: a checkpoint does not compare the token",
        "pikkujs/pikku#1742: writes of an attempt that was taken over are taken for its successor's",
        f"{_SUITE}test_a_checkpoint_is_fenced",
        in_statement("checkpoint", _TOKEN, ""),
    ),
    LeftToTests(
        "PostgreSQL: release does not compare the token",
        "KanishJebaMathewM/Truxify#4623: a slow request deletes the lock of its successor",
        f"{_SUITE}test_a_key_is_released_by_its_holder_only",
        in_statement("release", _TOKEN, ""),
    ),
    LeftToTests(
        "PostgreSQL: release does not compare the state",
        "aws-powertools/powertools-lambda-typescript#5675: a completed record was deleted",
        f"{_SUITE}test_an_outcome_cannot_be_released",
        in_statement("release", _RUNNING, ""),
    ),
    LeftToTests(
        "PostgreSQL: renew does not compare the token",
        "pikkujs/pikku#1742: an attempt that was taken over extends its successor's lease",
        f"{_SUITE}test_the_overtaken_can_change_nothing",
        in_statement("renew", "free.token = claim.token AND ", ""),
    ),
    LeftToTests(
        "PostgreSQL: purge removes what has not expired",
        "agents: DELETE … WHERE created_at < NOW() - INTERVAL '24 hours'",
        f"{_SUITE}test_nothing_is_removed_before_its_time",
        in_statement("purge", _EXPIRED, f"record.expires_at <= {_NOW}"),
    ),
    LeftToTests(
        "PostgreSQL: a batch that was rolled back is taken as done",
        REASONED,
        _IN_A_BATCH,
        patching(Session, "_batch", _takes_what_was_rolled_back_as_done),
    ),
    LeftToTests(
        "PostgreSQL: the trouble of one record is that of its batch",
        REASONED,
        _IN_A_BATCH,
        patching(queue_loop, "run_batch", fails_all),
    ),
    LeftToTests(
        "PostgreSQL: in a batch, finish does not compare the token",
        REASONED,
        _ONE_CALL,
        in_function("                AND record.token = final.token\n", ""),
    ),
    LeftToTests(
        "PostgreSQL: in a batch, an expired record is in the way",
        REASONED,
        _ONE_CALL,
        in_function("there.expires_at <= present", "FALSE"),
    ),
    LeftToTests(
        "PostgreSQL: in a batch, a record that is there is replaced",
        REASONED,
        _ONE_CALL,
        together(
            in_function("there.version = 1\n", "TRUE OR there.version = 1\n"),
            in_function("WHERE record.version = 1\n", "WHERE TRUE OR record.version = 1\n"),
        ),
    ),
    LeftToTests(
        "PostgreSQL: in a batch, a result is handed to the wrong caller",
        REASONED,
        _ONE_CALL,
        in_function("claimed.id)], claimed.attempt,", "claimed.id)] + 1, claimed.attempt,"),
    ),
)
