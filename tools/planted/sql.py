"""The same mistakes in SQL: a statement of the SQLite store with a condition left out.

Every connection has its statements from one table, so they are changed there.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import cast

from retrysafe._core.model import Final, Response
from retrysafe.stores.sql import codec, statements
from retrysafe.testing.simulate.sqlite import emptied
from tools.planted.bug import (
    HOLD,
    REASONED,
    REPLAY,
    RETRY,
    TX,
    Plant,
    Planted,
    patching,
    together,
)
from tools.planted.decisions import ignoring_checkpoints, taking_orphans

Head = Callable[[Response], dict[str, object]]
Outcome = Callable[[Final], dict[str, object]]


def rewriting(old: str, new: str, *names: str, dialect: str = "sqlite") -> Plant:
    """Other words in these statements; in all that have them, if none is named."""

    @contextmanager
    def plant() -> Generator[None]:
        known = cast("dict[str, str]", statements.load(dialect))
        changed = {name: text for name, text in known.items() if old in text and (name in names or not names)}
        if not changed or set(names) - changed.keys():
            raise LookupError(f"{old!r} is not in {', '.join(names) or 'any statement'}: it was rewritten")
        known.update({name: text.replace(old, new) for name, text in changed.items()})
        try:
            yield
        finally:
            known.update(changed)

    return plant


def _merges_headers(real: Head) -> Head:
    return lambda response: real(response._replace(headers=tuple(dict(response.headers).items())))


def _writes_text(real: Outcome) -> Outcome:
    def outcome(final: Final) -> dict[str, object]:
        body = final.response.body.decode("utf-8", "ignore").encode()
        return real(final._replace(response=final.response._replace(body=body)))

    return outcome


_EXPIRED = statements.load("sqlite")["expired"]
_MINE = "id = :id AND token = :token AND state = 'in_progress'"

PLANTED = (
    Planted(
        "SQL: finish is not fenced",
        "aws-lambda-powertools 3.37 updates records unconditionally; pikkujs/pikku#1742 writes results by id",
        RETRY._replace(store=emptied),
        rewriting(_MINE, "id = :id", "finish"),
    ),
    Planted(
        "SQL: finish does not compare the token",
        "pikkujs/pikku#1742: a stale worker overwrites its successor's result",
        RETRY._replace(store=emptied),
        rewriting("AND token = :token ", "", "finish"),
    ),
    Planted(
        "SQL: finish does not compare the state",
        "the callback receipts of job-callbacks are saved over whatever is there",
        REPLAY._replace(store=emptied),
        rewriting(_MINE, "id = :id AND (token = :token OR state = 'completed')", "finish"),
    ),
    Planted(
        "SQL: an outcome that is stored late has expired",
        REASONED,
        HOLD._replace(store=emptied),
        rewriting("expires_at = :now + :retention,", "", "finish_late"),
    ),
    Planted(
        "SQL: release does not compare the token",
        "KanishJebaMathewM/Truxify#4623: a slow request deletes the lock of its successor",
        RETRY._replace(handler="declines", store=emptied),
        rewriting("AND token = :token ", "", "release"),
    ),
    Planted(
        "SQL: tx: the completion does not compare the token",
        "aws-lambda-powertools 3.37 updates records unconditionally",
        TX._replace(store=emptied),
        rewriting("AND token = :token ", "", "conclude"),
    ),
    Planted(
        "SQL: tx: release does not compare the state",
        "aws-powertools/powertools-lambda-typescript#5675: a completed record was deleted",
        TX._replace(store=emptied),
        rewriting(" AND state = 'in_progress'", "", "release"),
    ),
    Planted(
        "SQL: renew does not compare the token",
        "pikkujs/pikku#1742: an attempt that was taken over extends its successor's lease",
        RETRY._replace(store=emptied),
        rewriting("AND record.token = claim.token ", "", "renew"),
    ),
    Planted(
        "SQL: renew revives what is finished",
        "brendanlong/lion-reader#917: a delayed heartbeat takes a job back",
        HOLD._replace(store=emptied),
        together(
            rewriting(" AND record.state = 'in_progress'", "", "renew"),
            rewriting("SET lease_until", "SET state = 'in_progress', lease_until", "renew"),
        ),
    ),
    Planted(
        "SQL: take_over does not compare the state",
        "our own history: enumerating schedules found a take-over that overran a failure",
        REPLAY._replace(handler="fails", store=emptied),
        rewriting("AND state = :state", "", "take_over"),
    ),
    Planted(
        "SQL: take_over does not compare the token",
        "fastidempotent 0.1.0 and idemptx 0.2.2 have locks without an owner",
        RETRY._replace(store=emptied),
        rewriting("AND token = :previous", "", "take_over"),
    ),
    Planted(
        "SQL: a missing lease is an orphan's",
        REASONED,
        RETRY._replace(store=emptied),
        together(
            rewriting("coalesce(lease_until, expires_at)", "coalesce(lease_until, 0)", "take_over"),
            taking_orphans,
        ),
    ),
    Planted(
        "SQL: a response that has begun to leave is run again",
        "idemgate 0.1.0 runs large and streamed requests again",
        RETRY._replace(handler="streams", store=emptied),
        together(rewriting("AND checkpointed = 0", "", "take_over"), ignoring_checkpoints),
    ),
    Planted(
        "SQL: a checkpoint does not compare the token",
        "pikkujs/pikku#1742: writes of an attempt that was taken over are taken for its successor's",
        RETRY._replace(handler="streams", store=emptied),
        rewriting("AND token = :token ", "", "checkpoint"),
    ),
    Planted(
        "SQL: reserve replaces what is in progress",
        "fastidempotent 0.1.0 and idemptx 0.2.2 have locks without an owner",
        HOLD._replace(store=emptied),
        together(
            rewriting("WHERE id = :id", "WHERE id = :id AND state <> 'in_progress'", "record_exists"),
            rewriting(_EXPIRED, "TRUE", "reserve"),
        ),
    ),
    Planted(
        "SQL: reserve leaves the expiry of what has expired",
        REASONED,
        RETRY._replace(store=emptied),
        rewriting("expires_at = excluded.expires_at,", "", "reserve"),
    ),
    Planted(
        "SQL: reserve leaves the fingerprint of what has expired",
        REASONED,
        HOLD._replace(store=emptied),
        rewriting("fingerprint = excluded.fingerprint,", "", "reserve"),
    ),
    Planted(
        "SQL: reserve leaves the number of what has expired",
        REASONED,
        RETRY._replace(store=emptied),
        rewriting("attempt = excluded.attempt,", "", "reserve"),
    ),
    Planted(
        "SQL: reserve leaves the mark of what has expired",
        REASONED,
        RETRY._replace(handler="streams", store=emptied),
        rewriting("checkpointed = excluded.checkpointed,", "", "reserve"),
    ),
    Planted(
        "SQL: take_over leaves the lease of the first attempt",
        REASONED,
        RETRY._replace(store=emptied),
        rewriting("lease_until = :now + :lease,", "", "take_over"),
    ),
    Planted(
        "SQL: headers are stored as an object",
        "idemkit 1.0.2 and gofiber/fiber#4693: repeated headers collapse",
        HOLD._replace(store=emptied),
        patching(codec, "head", _merges_headers),
    ),
    Planted(
        "SQL: bodies are stored as text",
        "erp and agents keep JSON and lose bytes",
        HOLD._replace(store=emptied),
        patching(codec, "resolution", _writes_text),
    ),
    Planted(
        "SQL: a tombstone is stored as an empty response",
        "erp: a body above 1 MiB replays as an empty 200",
        HOLD._replace(handler="streams", store=emptied),
        rewriting("omitted = :omitted", "omitted = 0", "finish"),
    ),
    Planted(
        "SQL: an unknown outcome expires with its retention",
        "erp: a scheduled job prunes whatever expires_at has passed",
        HOLD._replace(store=emptied),
        rewriting("held_until <= :now AND ", ""),
    ),
    Planted(
        "SQL: purge goes by the expiry alone",
        "agents: DELETE … WHERE created_at < NOW() - INTERVAL '24 hours'",
        HOLD._replace(store=emptied),
        rewriting(_EXPIRED, "expires_at <= :now", "purge"),
    ),
    Planted(
        "SQL: only a purge ends a retention",
        "agents: keys expire when the cleanup comes by",
        HOLD._replace(store=emptied),
        rewriting(f"AND ({_EXPIRED}) IS NOT TRUE", "", "look"),
    ),
)
