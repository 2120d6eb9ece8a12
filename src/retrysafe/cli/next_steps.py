"""What the next call with a key would get, and the commands that an operator can run.

`decisions.judge` decides it, as for real calls.  The policy belongs to the service and is not in the
store, so where the result depends on it, there is one result per choice.
"""

import os
import shlex
from typing import NamedTuple, assert_never

from retrysafe._core.decisions import judge
from retrysafe._core.model import Claim, Found, Record, Reserved
from retrysafe._core.problems import CATALOGUE, Code, Problem
from retrysafe._core.steps import Busy, CanTakeOver, Judgement, Replay
from retrysafe.cli.format import long_duration, short_id
from retrysafe.cli.words import exception_of, outcome_of, words
from retrysafe.policy import Abandoned, Failed, Policy
from retrysafe.stores.admin import Sighting

_ANOTHER = b"\0" * 16
"""A token that no claim has."""


class NextResult(NamedTuple):
    when: str
    """The policy of the service under which it is so; empty: under any."""
    result: str


_EXPLAINED = {
    "abandoned": "Its worker died or lost the store; the outcome is unknown.",
    "waiting": "Its payload is stored, and `retrysafe work` handles it.",
    "in_progress": "Its lease has not ended: the worker runs it, or died a moment ago.",
    "completed": "Retries get {result}.",
    "failed": "Retries get the failure, or run again, as the service chose.",
}

_ADVICE = {
    "abandoned": "Find out what happened, then settle it:",
    "waiting": "A worker handles it by itself. To have it handled at once:",
    "failed": "If nothing was done, or it was undone, let the next {call} run:",
}
_ADVICE_WITH_PAYLOAD = "Once the cause is fixed, have a worker handle it again, or let the next {call} run:"


def explained(sighting: Sighting) -> str:
    """What its standing means."""
    return _EXPLAINED[sighting.standing].format(result=_result(sighting.record))


def advice(sighting: Sighting) -> str:
    """What an operator does about it; empty where there is nothing to do."""
    said = _ADVICE.get(sighting.standing, "")
    if sighting.standing == "failed" and sighting.payload is not None:
        said = _ADVICE_WITH_PAYLOAD
    return said.format(call=words(sighting.record.door).call)


def _result(record: Record) -> str:
    """What retries get."""
    if record.door == "callback":
        return "an acknowledgement"
    if record.door == "operation" and record.omitted:
        return "no value, but that it was done"
    return "its exception again" if outcome_of(record) == "raised" else f"its {words(record.door).result}"


def next_results(sighting: Sighting) -> list[NextResult]:
    """What a retry would get, under each policy that makes a difference."""
    record = sighting.record
    if sighting.standing == "waiting":
        runs = _next_result(sighting, Policy(abandoned="retry", failed="retry"), "store_payload=True")
        return [NextResult("inbox=True", "gets 202: it is stored already, and a worker handles it"), runs]
    if record.state == "failed":
        # An operation has one exception for both `replay` and `conflict`.
        choices = _FAILED[:2] if record.door == "operation" else _FAILED
        return [_next_result(sighting, Policy(failed=choice), f'failed="{choice}"') for choice in choices]
    if sighting.standing != "abandoned" or record.mode == "tx" or record.checkpointed:
        return [_next_result(sighting, Policy(), "")]
    # The service's own choice comes first: it sets `held_until` when it claims a key.
    ordered = _ABANDONED if record.held_until > record.updated_at else _ABANDONED[::-1]
    return [_next_result(sighting, Policy(abandoned=choice), f'abandoned="{choice}"') for choice in ordered]


_FAILED: tuple[Failed, ...] = ("replay", "retry", "conflict")
_ABANDONED: tuple[Abandoned, ...] = ("hold", "retry")


def _next_result(sighting: Sighting, policy: Policy, when: str) -> NextResult:
    record = sighting.record
    judgement = judge(Found(record, sighting.now), _retry(record), policy)
    return NextResult(when, _describe(judgement, record))


def _retry(record: Record) -> Claim:
    """The same call once more."""
    return Claim(
        id=record.id,
        token=_ANOTHER,
        fingerprint=record.fingerprint,
        lease=0.0,
        retention=0.0,
        hold=0.0,
        door=record.door,
        scope=record.scope,
        key=record.key,
        action=record.action,
        target=record.target,
        request_id="",
    )


def _describe(judgement: Judgement, record: Record) -> str:
    code_word = words(record.door).code
    match judgement:
        case Replay():
            return f"{_replay(record)}; the {code_word} does not run"
        case CanTakeOver():
            return f"runs the {code_word} again, as attempt {record.attempt + 1}"
        case Busy(retry_after):
            return f"{_refusal('in-flight', record)}: try again in {long_duration(retry_after)}"
        case Problem(code):
            return f"{_refusal(code, record)}; the {code_word} does not run"
        case Reserved():
            raise AssertionError("no record has a token of zeros")
        case unreachable:
            assert_never(unreachable)


def _replay(record: Record) -> str:
    match outcome_of(record):
        case "failed":
            return "is refused with previously-failed"
        case "raised":
            exception = exception_of(record)
            return f"gets the stored {exception.type if exception else 'exception'}, raised again"
        case "returned":
            return (
                "is told that it was done, without its value" if record.omitted else "gets the stored value"
            )
        case None:
            if record.door == "callback":
                return (
                    "is acknowledged" if record.state == "completed" else "is refused with previously-failed"
                )
            status = record.response.status if record.response else None
            body = "with an empty body, marked as omitted" if record.omitted else "response"
            return f"gets the stored {status} {body}"


def _refusal(code: Code, record: Record) -> str:
    return f"is refused with {code}" if record.door == "operation" else f"{CATALOGUE[code].status} {code}"


def possible_commands(sighting: Sighting, store: str | None) -> list[str]:
    """Commands that settle the record as it stands now; none where it needs no operator."""
    id = short_id(sighting.record.id)
    where = _where(store)
    again = [] if sighting.payload is None else [f'retrysafe redrive {id} --reason "…"{where}']
    if sighting.standing == "waiting":  # to release it throws away what was acknowledged: no command to copy
        return again
    if sighting.standing == "failed":
        return [*again, f'retrysafe release {id} --state failed --reason "…"{where}']
    # A completed one can be released, too, but that does it twice: no command to copy.
    if sighting.standing != "abandoned":
        return []
    value = " --value JSON" if sighting.record.door == "operation" else ""
    return [
        *again,
        f'retrysafe resolve {id} --done{value} --reason "…"{where}',
        f'retrysafe resolve {id} --failed --reason "…"{where}',
        f'retrysafe release {id} --reason "…"{where}',
    ]


def _where(store: str | None) -> str:
    from retrysafe.cli.options import ENVIRONMENT  # loads typer, and only the command line has it

    # An address may contain a password, and screens are copied into chats.
    secret = store is not None and ("@" in store or "password" in store.lower())
    if store is None or secret or os.environ.get(ENVIRONMENT) == store:
        return ""
    return f" --store {shlex.quote(store)}"
