"""What the next request with a key would get, and what an operator can do about it.

Asked of `decisions.judge`, which decides it for real requests as well.  Its policy belongs to the service and
is not in the store, so where the answer depends on it, each choice is told.
"""

import os
import shlex
from typing import NamedTuple, assert_never

from retrysafe._core.decisions import judge
from retrysafe._core.model import Claim, Found, Record, Reserved
from retrysafe._core.problems import CATALOGUE, Problem
from retrysafe._core.steps import Busy, CanTakeOver, Judgement, Replay
from retrysafe.cli.format import short_id, spoken
from retrysafe.cli.options import ENVIRONMENT
from retrysafe.policy import Abandoned, Failed, Policy
from retrysafe.stores.admin import Sighting

_ANOTHER = b"\0" * 16
"""The token of a bid that is nobody's."""


class Prospect(NamedTuple):
    when: str
    """The service's choice under which it is so; empty: always."""
    answer: str


def prospects(sighting: Sighting) -> list[Prospect]:
    """What a retry would get, by each policy that makes a difference."""
    record = sighting.record
    if record.state == "failed":
        return [_prospect(sighting, Policy(failed=choice), f'failed="{choice}"') for choice in _FAILED]
    if sighting.standing != "abandoned" or record.mode == "tx" or record.checkpointed:
        return [_prospect(sighting, Policy(), "")]
    # What the service chose when it claimed the key comes first: it left its mark on the record.
    choices = _ABANDONED if record.held_until > record.updated_at else _ABANDONED[::-1]
    return [_prospect(sighting, Policy(abandoned=choice), f'abandoned="{choice}"') for choice in choices]


_FAILED: tuple[Failed, ...] = ("replay", "retry", "conflict")
_ABANDONED: tuple[Abandoned, ...] = ("hold", "retry")


def _prospect(sighting: Sighting, policy: Policy, when: str) -> Prospect:
    record = sighting.record
    judgement = judge(Found(record, sighting.now), _retry(record), policy)
    return Prospect(when, _spoken(judgement, record))


def _retry(record: Record) -> Claim:
    """The same request once more."""
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


def _spoken(judgement: Judgement, record: Record) -> str:
    match judgement:
        case Replay():
            status = record.response.status if record.response else None
            body = "with an empty body, marked as omitted" if record.omitted else "from the record"
            return f"is answered {status} {body}; the handler does not run"
        case CanTakeOver():
            return f"runs the handler again, as attempt {record.attempt + 1}"
        case Busy(retry_after):
            return f"409 in-flight: try again in {spoken(retry_after)}"
        case Problem(code):
            return f"{CATALOGUE[code].status} {code}; the handler does not run"
        case Reserved():
            raise AssertionError("a token of zeros is nobody's")
        case unreachable:
            assert_never(unreachable)


def possible_commands(sighting: Sighting, store: str | None) -> list[str]:
    """What can be done to a record now; nothing, where it takes care of itself."""
    if sighting.standing != "abandoned":
        return []
    id = short_id(sighting.record.id)
    where = _where(store)
    return [
        f'retrysafe resolve {id} --done --reason "…"{where}',
        f'retrysafe resolve {id} --failed --reason "…"{where}',
        f'retrysafe release {id} --reason "…"{where}',
    ]


def _where(store: str | None) -> str:
    # An address may hold a password, and what is on a screen is soon in a chat.
    secret = store is not None and ("@" in store or "password" in store.lower())
    if store is None or secret or os.environ.get(ENVIRONMENT) == store:
        return ""
    return f" --store {shlex.quote(store)}"
