"""The same mistakes in the scripts that Redis runs, and in how they are sent there.

The simulator does not run them: each is caught by a test on a real server.
"""

from collections.abc import Callable
from typing import Any

from retrysafe.stores.redis import scripts
from retrysafe.stores.redis.executor import Pipeline
from retrysafe.stores.redis.session import Session
from tools.planted.bug import REASONED, LeftToTests, Plant, patching

_SUITE = "tests/stores/test_redis.py::TestRedis::"
_FAULTS = "tests/stores/test_redis_faults.py::"

Read = Callable[[str], str]


def in_script(name: str, old: str, new: str) -> Plant:
    """Other words in a file of Lua; every script that has it is made anew by the next store."""

    def make(real: Read) -> Read:
        if old not in real(name):
            raise LookupError(f"{old!r} is not in {name}.lua: it was rewritten")
        return lambda asked: real(asked).replace(old, new) if asked == name else real(asked)

    return patching(scripts, "_text", make)


Unpacked = Callable[..., Any]


def _believes_any_wait(real: Unpacked) -> Unpacked:
    def unpacked(self: Pipeline, arrived: Any, *rest: Any) -> Any:
        if self._wait and isinstance(arrived, list):  # pyright: ignore[reportPrivateUsage]
            arrived[-1] = self._wait  # pyright: ignore[reportPrivateUsage]
        return real(self, arrived, *rest)

    return unpacked


def _is_used_again(_: object) -> property:
    return property(lambda self: not self._is_closed)


_TOKEN = "token_of(head) ~= ARGV[1]"

TESTED = (
    LeftToTests(
        "Redis: finish does not compare the token",
        "pikkujs/pikku#1742: a stale worker overwrites its successor's result",
        f"{_SUITE}test_a_stranger_finishes_nothing",
        in_script("finish", _TOKEN, "false"),
    ),
    LeftToTests(
        "Redis: finish does not compare the state",
        "the callback receipts of job-callbacks are saved over whatever is there",
        f"{_SUITE}test_an_outcome_is_final",
        in_script("finish", "values[STATE] ~= RUNNING", "false"),
    ),
    LeftToTests(
        "Redis: an outcome that is stored late has expired",
        REASONED,
        f"{_SUITE}test_a_late_outcome_is_seen_for_its_retention",
        in_script("finish", "values[EXPIRES] <= now", "false"),
    ),
    LeftToTests(
        "Redis: finish does not recognise itself",
        REASONED,
        f"{_SUITE}test_saying_it_twice_is_saying_it_once",
        in_script("finish", "values[STATE] ~= state\n", "true\n"),
    ),
    LeftToTests(
        "Redis: reserve replaces what is in progress",
        "fastidempotent 0.1.0 and idemptx 0.2.2 have locks without an owner",
        f"{_SUITE}test_a_second_claim_is_told_of_the_first",
        in_script("reserve", "not has_expired(head)", "string.byte(head, 2) ~= RUNNING"),
    ),
    LeftToTests(
        "Redis: a record goes by its expiry alone, and not by a live lease",
        REASONED,
        f"{_SUITE}test_no_record_expires_under_a_live_lease",
        in_script("common", "string.byte(head, 2) ~= RUNNING or", "true or"),
    ),
    LeftToTests(
        "Redis: reserve writes over what has expired, and leaves the rest of it",
        REASONED,
        f"{_SUITE}test_a_fresh_record_keeps_nothing_of_the_expired_one",
        in_script("reserve", "    redis.call('DEL', KEYS[4])\n", ""),
    ),
    LeftToTests(
        "Redis: look finds what has expired",
        "agents: keys expire when the cleanup comes by",
        f"{_SUITE}test_an_outcome_is_found_until_it_expires",
        in_script("look", "if has_expired(head) then", "if false then"),
    ),
    LeftToTests(
        "Redis: take_over does not compare the state",
        "our own history: enumerating schedules found a take-over that overran a failure",
        f"{_SUITE}test_an_owner_that_failed_in_the_last_moment_was_not_abandoned",
        in_script("take_over", "string.byte(previous, 2) == tonumber(ARGV[8])", "true"),
    ),
    LeftToTests(
        "Redis: take_over does not compare the token",
        "fastidempotent 0.1.0 and idemptx 0.2.2 have locks without an owner",
        f"{_SUITE}test_only_the_attempt_that_was_judged_is_replaced",
        in_script("take_over", "token_of(previous) == ARGV[7]", "true"),
    ),
    LeftToTests(
        "Redis: take_over does not wait for the end of a lease",
        "django-idempotency-key 1.3.0 ran 8 concurrent duplicates 8 times",
        f"{_SUITE}test_a_live_lease_is_never_taken_away",
        in_script("take_over", " and has_lapsed(values[LEASE], values[EXPIRES])", ""),
    ),
    LeftToTests(
        "Redis: a missing lease is an orphan's",
        REASONED,
        f"{_SUITE}test_a_missing_lease_is_a_live_one",
        in_script("common", "(lease > 0 and lease or expires)", "lease"),
    ),
    LeftToTests(
        "Redis: a response that has begun to leave is run again",
        "idemgate 0.1.0 runs large and streamed requests again",
        f"{_SUITE}test_a_checkpointed_attempt_is_never_taken_over",
        in_script("take_over", "values[CHECKPOINTED] == 0", "true"),
    ),
    LeftToTests(
        "Redis: a checkpoint does not compare the token",
        "pikkujs/pikku#1742: writes of an attempt that was taken over are taken for its successor's",
        f"{_SUITE}test_a_checkpoint_is_fenced",
        in_script("checkpoint", _TOKEN, "false"),
    ),
    LeftToTests(
        "Redis: release does not compare the token",
        "KanishJebaMathewM/Truxify#4623: a slow request deletes the lock of its successor",
        f"{_SUITE}test_a_key_is_released_by_its_holder_only",
        in_script("release", _TOKEN, "false"),
    ),
    LeftToTests(
        "Redis: release does not compare the state",
        "aws-powertools/powertools-lambda-typescript#5675: a completed record was deleted",
        f"{_SUITE}test_an_outcome_cannot_be_released",
        in_script("release", "string.byte(head, 2) ~= RUNNING", "false"),
    ),
    LeftToTests(
        "Redis: renew does not compare the token",
        "pikkujs/pikku#1742: an attempt that was taken over extends its successor's lease",
        f"{_SUITE}test_the_overtaken_can_change_nothing",
        in_script("renew", _TOKEN, "false"),
    ),
    LeftToTests(
        "Redis: purge removes what has not expired",
        "agents: DELETE … WHERE created_at < NOW() - INTERVAL '24 hours'",
        f"{_SUITE}test_nothing_is_removed_before_its_time",
        in_script("purge", "elseif has_expired(head) then", "else"),
    ),
    LeftToTests(
        "Redis: a store without its sentinel is a new one",
        REASONED,
        f"{_FAULTS}test_a_flush_is_noticed",
        in_script("common", "redis.call('GET', KEYS[1])", "(redis.call('GET', KEYS[1]) or '1 planted')"),
    ),
    LeftToTests(
        "Redis: it does not matter how many replicas have acknowledged",
        "our own measurement: 400 of 2,000 acknowledged claims were lost in a failover",
        "tests/stores/test_redis_replicas.py::test_what_no_replica_has_is_not_acknowledged",
        patching(Pipeline, "_unpacked", _believes_any_wait),
    ),
    LeftToTests(
        "Redis: a connection whose replies were not awaited is used again",
        "redis-py before 4.5.5, CVE-2023-28858: a cancelled request leaves its reply to the next one",
        f"{_FAULTS}test_a_late_reply_is_not_taken_for_another",
        patching(Session, "usable", _is_used_again),
    ),
)
