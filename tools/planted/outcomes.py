"""Flows that end wrongly: an outcome is not stored, not reported as it is, or not committed as stored."""

from collections.abc import Callable

from retrysafe._core import protocol
from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Response
from retrysafe._core.steps import (
    Call,
    Checkpoint,
    Commit,
    Finish,
    Flow,
    Forget,
    Outcome,
    Release,
    Result,
    Run,
    Step,
    Streamed,
    ask,
)
from retrysafe.errors import CommitRefused, StoreError
from retrysafe.testing.simulate import world
from tools.planted.bug import (
    HOLD,
    REASONED,
    RETRY,
    TX,
    Perform,
    Planted,
    doing,
    patching,
)

Keep = Callable[[Call, Finish | Checkpoint], Flow[bool | StoreError]]
Conclude = Callable[[Call, Attempt, Outcome], Flow[Result]]
LetFlow = Callable[[Call, Attempt, Response], Flow[Result | None]]


def _answers_first(_real: Keep) -> Keep:
    def keep(_call: Call, _write: Finish | Checkpoint) -> Flow[bool | StoreError]:
        return True
        yield  # never: this makes it a flow

    return keep


def _tries_once(_real: Keep) -> Keep:
    def keep(_call: Call, write: Finish | Checkpoint) -> Flow[bool | StoreError]:
        try:
            return (yield from ask(write))
        except StoreError:
            return True

    return keep


def _believes_no_fence(real: Keep) -> Keep:
    def keep(call: Call, write: Finish | Checkpoint) -> Flow[bool | StoreError]:
        stored = yield from real(call, write)
        return stored if isinstance(stored, StoreError) else True

    return keep


def _releases_unstored(real: Conclude) -> Conclude:
    def conclude(call: Call, attempt: Attempt, outcome: Outcome) -> Flow[Result]:
        result = yield from real(call, attempt, outcome)
        if result.verdict == "unstored":
            yield from ask(Forget(call.claim))
        return result

    return conclude


def _marks_nothing(real: Conclude) -> Conclude:
    def conclude(call: Call, attempt: Attempt, outcome: Outcome) -> Flow[Result]:
        result = yield from real(call, attempt, outcome)
        return result._replace(stored=True)

    return conclude


def _marks_no_risk(
    real: Callable[[Call, StoreError], Flow[Result]],
) -> Callable[[Call, StoreError], Flow[Result]]:
    def unprotected(call: Call, trouble: StoreError) -> Flow[Result]:
        result = yield from real(call, trouble)
        return result._replace(stored=True)

    return unprotected


def _releases_streams(real: Conclude) -> Conclude:
    def conclude(call: Call, attempt: Attempt, outcome: Outcome) -> Flow[Result]:
        if isinstance(outcome, Streamed):
            yield from ask(Release(call.claim))
            return Result("completed", None, attempt=attempt.number)
        return (yield from real(call, attempt, outcome))

    return conclude


def _never_releases(_real: object) -> Callable[[Call], Flow[None]]:
    def release(_call: Call) -> Flow[None]:
        return
        yield  # never: this makes it a flow

    return release


def _releases_when_cancelled(_call: Call) -> Perform:
    def perform(step: Step) -> Flow[object]:
        try:
            return (yield step)
        except GeneratorExit:
            raise
        except BaseException:
            if isinstance(step, Run):
                yield from ask(Release(step.attempt.claim))
            raise

    return perform


def _flows_unnoted(_real: object) -> LetFlow:
    def let_flow(_call: Call, attempt: Attempt, head: Response) -> Flow[Result | None]:
        attempt.checkpointed = True
        return Result("completed", head, attempt=attempt.number)
        yield  # never: this makes it a flow

    return let_flow


def _flows_overtaken(real: LetFlow) -> LetFlow:
    def let_flow(call: Call, attempt: Attempt, head: Response) -> Flow[Result | None]:
        result = yield from real(call, attempt, head)
        attempt.checkpointed = True
        return result or Result("completed", head, attempt=attempt.number)

    return let_flow


def _carries_anything(_real: object) -> Callable[[bool], bool]:
    return lambda _kept: True


def _finishes_before_it_commits(_call: Call) -> Perform:
    def perform(step: Step) -> Flow[object]:
        if isinstance(step, Commit):
            yield from ask(Finish(step.claim, step.final))
        return (yield step)

    return perform


def _takes_silence_for_success(_call: Call) -> Perform:
    def perform(step: Step) -> Flow[object]:
        try:
            return (yield step)
        except StoreError:
            if isinstance(step, Commit):
                return True
            raise

    return perform


def _takes_silence_for_failure(_call: Call) -> Perform:
    def perform(step: Step) -> Flow[object]:
        try:
            return (yield step)
        except StoreError as trouble:
            if isinstance(step, Commit):
                raise CommitRefused("no response") from trouble
            raise

    return perform


def _ends_what_is_not_stored(real: Conclude) -> Conclude:
    def conclude(call: Call, attempt: Attempt, outcome: Outcome) -> Flow[Result]:
        return (yield from real(call, attempt, outcome))._replace(cut_off=False)

    return conclude


def _ends_what_broke_off(real: Conclude) -> Conclude:
    def conclude(call: Call, attempt: Attempt, outcome: Outcome) -> Flow[Result]:
        return (yield from real(call, attempt, outcome))._replace(error=None)

    return conclude


PLANTED = (
    Planted(
        "a response is sent before it is stored",
        "soterika/aura-vault-protocol#581: responses are stored some time after they were sent",
        HOLD,
        patching(protocol, "store", _answers_first),
    ),
    Planted(
        "a write that failed counts as done",
        "fastapi-idempotency 0.1.1 replays a success whose commit failed",
        HOLD,
        patching(protocol, "store", _tries_once),
    ),
    Planted(
        "an owner that was taken over returns its own result",
        "patibandlavenkatamanideep/memoryops-ai#98: a stalled worker goes on with stale authority",
        RETRY,
        patching(protocol, "store", _believes_no_fence),
    ),
    Planted(
        "what could not be stored is released",
        "koala73/worldmonitor#4728: what cannot be stored releases the lock, so a retry runs again",
        HOLD,
        patching(protocol, "conclude", _releases_unstored),
    ),
    Planted(
        "what could not be stored is not marked",
        REASONED,
        HOLD,
        patching(protocol, "conclude", _marks_nothing),
    ),
    Planted(
        "a response without the store is not marked",
        "soterika/aura-vault-protocol#581 fails open when Redis is not there",
        HOLD._replace(store_down="run"),
        patching(protocol, "_unprotected", _marks_no_risk),
    ),
    Planted(
        "a stream that could not be stored is brought to its end",
        "this library, before it judged the bytes that a client received",
        HOLD._replace(handler="streams"),
        patching(protocol, "conclude", _ends_what_is_not_stored),
    ),
    Planted(
        "a stream that its handler broke off is brought to its end",
        REASONED,
        HOLD._replace(handler="breaks off"),
        patching(protocol, "conclude", _ends_what_broke_off),
    ),
    Planted(
        "a stream leaves no tombstone",
        "idemgate 0.1.0 runs large and streamed requests again",
        HOLD._replace(handler="streams"),
        patching(protocol, "conclude", _releases_streams),
    ),
    Planted(
        "what was not done is never released",
        "asgi-idempotency-header 0.2.0: an exception leaves 409 for ever",
        HOLD._replace(handler="declines"),
        patching(protocol, "_release", _never_releases),
    ),
    Planted(
        "a request that is cancelled releases its key",
        "fullstackhero/dotnet-starter-kit#1333: the client hangs up after the effect, and the retry runs",
        HOLD,
        doing(_releases_when_cancelled),
    ),
    Planted(
        "a stream leaves without a checkpoint",
        "idemgate 0.1.0 runs large and streamed requests again",
        RETRY._replace(handler="streams"),
        patching(protocol, "let_flow", _flows_unnoted),
    ),
    Planted(
        "an owner that was taken over streams all the same",
        REASONED,
        RETRY._replace(handler="streams"),
        patching(protocol, "let_flow", _flows_overtaken),
    ),
    Planted(
        "tx: what was fenced is committed",
        "patibandlavenkatamanideep/memoryops-ai#98: a stalled worker commits with stale authority",
        TX,
        patching(world, "carried", _carries_anything),
    ),
    Planted(
        "tx: the record is finished before the commit",
        "aasmanj/altarwed#614: receipts commit before the work they describe",
        TX,
        doing(_finishes_before_it_commits),
    ),
    Planted(
        "tx: a commit without a reply counts as done",
        "fastapi-idempotency 0.1.1 replays a success whose commit failed",
        TX,
        doing(_takes_silence_for_success),
    ),
    Planted(
        "tx: a commit without a reply counts as undone",
        "redpanda-data/redpanda#3501: a transaction was called rejected that was committed",
        TX,
        doing(_takes_silence_for_failure),
    ),
)
