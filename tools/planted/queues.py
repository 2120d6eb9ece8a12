"""Mistakes of the queue in front of a store: batches that are formed, repeated or handed out wrongly."""

from asyncio import CancelledError
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from retrysafe._core.model import Reserved
from retrysafe._core.steps import Reserve, Step
from retrysafe.stores import queue_loop
from retrysafe.stores.queue import Call, Counts, Job, Operation, Outcome, Pending, Plan, Run
from retrysafe.stores.queue_loop import LoopQueue
from retrysafe.stores.retry import Trouble
from retrysafe.testing.simulate import batches
from retrysafe.testing.simulate.batches import Apply
from retrysafe.testing.simulate.request import Queued
from tools.planted.bug import HOLD, REASONED, RETRY, LeftToTests, Plant, Planted, patching, together

Batch = Sequence[Job[Any]]
RunBatch = Callable[[Batch, Counts], Plan]
Outcomes = Sequence[Outcome]


def fails_all(real: RunBatch) -> RunBatch:
    """The trouble of one call is that of all of its batch."""

    def run_batch(batch: Batch, counts: Counts) -> Plan:
        plan = real(batch, counts)
        try:
            step = next(plan)
            while True:
                try:
                    outcomes = yield step
                except Trouble as trouble:
                    step = plan.throw(trouble if trouble.stale else trouble.as_error())
                else:
                    step = plan.send(outcomes)
        except StopIteration:
            return

    return run_batch


def running(
    *,
    outcomes: Callable[[Batch, Outcomes], Outcomes] = lambda _, outcomes: outcomes,
    trouble: Callable[[Run, Trouble], Outcomes | Trouble] = lambda _, trouble: trouble,
    again: Callable[[Run], Run] = lambda run: run,
) -> Plant:
    """Run batches in another way: change what they had, what their trouble means, or what is sent again."""

    def make(real: RunBatch) -> RunBatch:
        def run_batch(batch: Batch, counts: Counts) -> Plan:
            plan = real(batch, counts)
            step = next(plan)
            try:
                while True:
                    assert isinstance(step, Run)
                    found: Outcomes | Trouble
                    try:
                        found = outcomes(batch, (yield step))
                    except Trouble as raised:
                        found = trouble(step, raised)
                    if isinstance(found, Trouble):
                        step = plan.throw(found)
                        assert isinstance(step, Run)
                        step = again(step)
                    else:
                        step = plan.send(found)
            except StopIteration:
                return

        return run_batch

    return patching(queue_loop, "run_batch", make)


def _next_one(_: Batch, outcomes: Outcomes) -> Outcomes:
    return [*outcomes[1:], *outcomes[:1]]


def _those_who_stayed(batch: Batch, outcomes: Outcomes) -> Outcomes:
    """The first outcomes go to those who still wait."""
    left = iter(outcomes)
    given = {id(job): next(left) for job in batch if not job.abandoned}
    return [given[id(job)] if id(job) in given else next(left) for job in batch]


def _with_new_tokens(run: Run) -> Run:
    calls: list[Call] = []
    for name, arguments in run.calls:
        step = cast("Reserve", arguments["step"])  # or any other: all have a claim
        claim = step.claim._replace(token=step.claim.token + b" again")
        calls.append((name, {**arguments, "step": step._replace(claim=claim)}))
    return run._replace(calls=calls)  # type: ignore[arg-type]  # nothing is postponed in a simulation


_AS_IF_DONE: dict[str, object] = {
    "Reserve": Reserved(1), "TakeOver": Reserved(2), "Checkpoint": True, "Finish": True,
}  # fmt: skip


def _as_if_done(run: Run) -> list[Outcome]:
    return [[(_AS_IF_DONE.get(name),)] for name, _ in run.calls]


def _refused_rows_as_done(run: Run, trouble: Trouble) -> Outcomes | Trouble:
    """What the statements before the one that was refused had returned is handed out, and was rolled back."""
    if trouble.disconnected or len(run.calls) == 1:
        return trouble
    return [*_as_if_done(run)[:-1], trouble]


def _lost_reply_as_done(run: Run, trouble: Trouble) -> Outcomes | Trouble:
    return trouble if trouble.stale or not trouble.disconnected else _as_if_done(run)


_take = Pending.take
_perform = LoopQueue.perform


class TakesAll(Pending[Any]):
    """Two calls about one record may be in one batch."""

    def take(self) -> list[Job[Any]]:
        batch = [job for job in (*self._urgent, *self._others) if not job.abandoned]
        self.clear()
        return sorted(batch, key=lambda job: job.id)


class TakesInOrderOfArrival(Pending[Any]):
    """Completions have no precedence."""

    def take(self) -> list[Job[Any]]:
        self._others = deque([*self._others, *self._urgent])
        self._urgent = deque()
        return _take(self)


class TakesUnsorted(Pending[Any]):
    def take(self) -> list[Job[Any]]:
        return list(reversed(_take(self)))


class TakesTheAbandoned(Pending[Any]):
    """What a caller withdrew before it was sent is performed all the same."""

    def take(self) -> list[Job[Any]]:
        batch: dict[bytes, Job[Any]] = {}
        for job in self.clear():
            if job.id in batch:
                self.add(job)
            else:
                batch[job.id] = job
        return sorted(batch.values(), key=lambda job: job.id)


class NeverFull(Pending[Any]):
    def add(self, job: Job[Any]) -> None:
        (self._urgent if job.urgent else self._others).append(job)


class Forgets(Pending[Any]):
    def put_back(self, job: Job[Any]) -> None:
        """It had another call to make."""


class GivesTheBatchUp(LoopQueue):
    """A caller that is cancelled cancels what its operation was sent with."""

    async def perform(self, *arguments: Any, **more: Any) -> Any:
        try:
            return await _perform(self, *arguments, **more)
        except CancelledError:
            for task in self._tasks:
                task.cancel()
            raise


def instead(planted: type, name: str) -> Plant:
    """A method of the planted class in the place of the real one's."""
    return patching(planted.__mro__[1], name, lambda _: getattr(planted, name))


Perform = Callable[[Sequence[Call], Apply], list[Outcome]]


def _decides_by_what_was_there(real: Perform) -> Perform:
    """As one statement for a whole batch does: each row is judged by what was there before it."""

    def perform(calls: Sequence[Call], apply: Apply) -> list[Outcome]:
        outcomes = real(calls, apply)
        fresh: dict[bytes, Outcome] = {}
        for number, (name, arguments) in enumerate(calls):
            if name == "Reserve":
                id = cast("Queued", arguments["queued"]).request.claim.id
                if id in fresh:
                    outcomes[number] = fresh[id]
                elif outcomes[number] == [(Reserved(1),)]:
                    fresh[id] = outcomes[number]
        return outcomes

    return perform


deciding_by_what_was_there = patching(batches, "perform", _decides_by_what_was_there)
"""Harmless by itself: no key is in a batch twice."""


def _looks_again_for_ever(_: object) -> Callable[[Queued], Operation[object]]:
    def operation(queued: Queued) -> Operation[object]:
        step: Step = queued.step
        while True:
            [[reply]] = yield type(step).__name__, {"queued": queued, "step": step}
            if reply is not False:
                return reply

    return operation


PLANTED = (
    Planted(
        "a result of a batch goes to the wrong caller",
        "redis/redis-py#2624: after a command was cancelled, each reply went to the one after it",
        HOLD,
        running(outcomes=_next_one),
    ),
    Planted(
        "the results of a batch are given to those who still wait",
        "redis/redis-py#2624: after a command was cancelled, each reply went to the one after it",
        HOLD,
        running(outcomes=_those_who_stayed),
    ),
    Planted(
        "a batch is sent again with new tokens",
        REASONED,
        RETRY,
        running(again=_with_new_tokens),
    ),
    Planted(
        "a row of a batch that was refused is taken as done",
        REASONED,
        HOLD,
        running(trouble=_refused_rows_as_done),
    ),
    Planted(
        "a batch whose reply was lost is taken as done",
        REASONED,
        HOLD,
        running(trouble=_lost_reply_as_done),
    ),
    Planted(
        "a key is twice in a batch, and new both times",
        "camunda/camunda#60741: one request may carry the same id twice",
        HOLD,
        together(instead(TakesAll, "take"), deciding_by_what_was_there),
    ),
    Planted(
        "an operation with another call to make is forgotten",
        REASONED,
        RETRY,
        instead(Forgets, "put_back"),
    ),
    Planted(
        "an operation that finds nothing looks again for ever",
        REASONED,
        RETRY,
        patching(batches, "_operation", _looks_again_for_ever),
    ),
)

_QUEUE = "tests/stores/test_queue.py::"

TESTED = (
    LeftToTests(
        "completions do not go before claims",
        REASONED,
        f"{_QUEUE}test_completions_go_before_claims",
        instead(TakesInOrderOfArrival, "take"),
    ),
    LeftToTests(
        "a batch is not sorted by record",
        "two transactions that lock rows in different orders wait for each other",
        f"{_QUEUE}test_what_arrives_meanwhile_is_the_next_batch_sorted_by_record",
        instead(TakesUnsorted, "take"),
    ),
    LeftToTests(
        "two calls about one record are in one batch",
        "camunda/camunda#60741: one request may carry the same id twice",
        f"{_QUEUE}test_two_calls_about_one_record_are_never_in_one_batch",
        instead(TakesAll, "take"),
    ),
    LeftToTests(
        "a full queue takes more",
        REASONED,
        f"{_QUEUE}test_a_full_queue_refuses_at_once",
        instead(NeverFull, "add"),
    ),
    LeftToTests(
        "what a caller had withdrawn is performed",
        REASONED,
        f"{_QUEUE}test_a_cancelled_coroutine_withdraws_what_was_not_begun",
        instead(TakesTheAbandoned, "take"),
    ),
    LeftToTests(
        "a caller that leaves ends the batch that its operation was sent with",
        "redis/redis-py#2624: a command that is cancelled leaves its reply on the connection",
        f"{_QUEUE}test_a_cancelled_coroutine_withdraws_what_was_not_begun",
        instead(GivesTheBatchUp, "perform"),
    ),
)
