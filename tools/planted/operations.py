"""Operations: which call a key belongs to, and those that are a part of another call's transaction."""

from collections.abc import Callable

from retrysafe._core import keys, protocol
from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Door, Reserved
from retrysafe._core.steps import (
    Call,
    Finish,
    Flow,
    LookWithin,
    Reserve,
    Result,
    Run,
    Spoil,
    Step,
    StoreWithin,
    ask,
)
from retrysafe.operations.arguments import Arguments, Parameters
from retrysafe.testing.simulate.setting import NESTED, Setting
from tools.planted.bug import REASONED, Perform, Plant, Planted, patching, performed

CALLED = Setting("operations, hold", door="operation")
BESIDE = Setting("beside requests, hold", door="both")
RAISING = NESTED._replace(name="nested, at first it raises", handler="raises")

Within = Callable[[Call, Attempt], Flow[Result]]


def within(make: Callable[[Call], Perform]) -> Plant:
    """Do all steps of an operation that is a part of another call in another way."""

    def plant(real: Within) -> Within:
        return lambda call, outer: performed(real(call, outer), make(call))

    return patching(protocol, "within", plant)


def _stores_apart(call: Call) -> Perform:
    def perform(step: Step) -> Flow[object]:
        if not isinstance(step, StoreWithin):
            return (yield step)
        reserved = yield from ask(Reserve(call.claim))
        return isinstance(reserved, Reserved) and (yield from ask(Finish(call.claim, step.final)))

    return perform


def _spoils_nothing(_: Call) -> Perform:
    def perform(step: Step) -> Flow[object]:
        return None if isinstance(step, Spoil) else (yield step)

    return perform


def _believes_no_conflict(_: Call) -> Perform:
    def perform(step: Step) -> Flow[object]:
        reply: object = yield step
        return True if isinstance(step, StoreWithin) else reply

    return perform


def _counts_from_one(_: Call) -> Perform:
    def perform(step: Step) -> Flow[object]:
        if isinstance(step, Run):
            step.attempt.number = 1
        return (yield step)

    return perform


def _is_not_judged(real: Within) -> Within:
    """It runs whatever was found, and replaces nothing."""

    def run(call: Call, outer: Attempt) -> Flow[Result]:
        def perform(step: Step) -> Flow[object]:
            reply: object = yield step
            return None if isinstance(step, LookWithin) else reply

        return performed(real(call, outer), perform)

    return run


Digest = Callable[..., bytes]


def _by_one_door(real: Digest) -> Digest:
    def digest(_door: Door, *rest: object) -> bytes:
        return real("request", *rest)

    return digest


Taken = Callable[[Parameters, str, str, Arguments], bytes]


def _without_target(real: Taken) -> Taken:
    return lambda parameters, action, _target, bound: real(parameters, action, "", bound)


def _without_arguments(real: Taken) -> Taken:
    return lambda parameters, action, target, _bound: real(parameters, action, target, {})


def _fingerprinting(make: Callable[[Taken], Taken]) -> Plant:
    return patching(Parameters, "fingerprint", make)


PLANTED: tuple[Planted, ...] = (
    Planted(
        "the target of an operation is not compared",
        REASONED,
        CALLED,
        _fingerprinting(_without_target),
    ),
    Planted(
        "the arguments of an operation are not compared",
        "workflow-control: another start_step replays the wrong fork",
        CALLED,
        _fingerprinting(_without_arguments),
    ),
    Planted(
        "an operation has the record of a request with the same key",
        REASONED,
        BESIDE,
        patching(keys, "digest", _by_one_door),
    ),
    Planted(
        "the record of a part is stored outside the transaction of the call around it",
        REASONED,
        NESTED,
        within(_stores_apart),
    ),
    Planted(
        "a part that fails does not keep the call around it from committing",
        REASONED,
        RAISING,
        within(_spoils_nothing),
    ),
    Planted(
        "a part that was done by another call meanwhile is committed once more",
        REASONED,
        NESTED,
        within(_believes_no_conflict),
    ),
    Planted(
        "a part that replaces an abandoned attempt counts as the first",
        REASONED,
        NESTED,
        within(_counts_from_one),
    ),
    Planted(
        "a part does not look for its record",
        REASONED,
        NESTED,
        patching(protocol, "within", _is_not_judged),
    ),
)
