"""A whole run: the faults that were asked for, shared among rounds, and what came of all of them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tools.crash import targets
from tools.crash.faults import WHILE_FLOWING
from tools.crash.modes import INBOX, MODES, NESTED, PAYLOAD, TRANSACTIONAL, Door, Interruption, Mode, Rotation
from tools.crash.rounds import Plan, Result, run
from tools.crash.targets import Target, Unsupported

LEAST = {"kills": 1, "freezes": 1, "cuts": 10, "server_kills": 1, "outages": 1}
"""Of each kind of fault, what a round should have if it has any.  Where connections can be cut, all traffic
to the database goes through a proxy, and is slower."""

NAMES = {
    "kill": "kills",
    "stop": "freezes",
    "cut": "cuts",
    "server kill": "server kills",
    "outage": "outages",
}
"""As they are counted while they happen, and as they are reported."""

FAULTS_PER_EXECUTION = 10
"""Faults for each execution that nothing can have excused, at most.  Most faults meet workers that were just
started, and some of these are so slow that they may have lost a lease."""

ROUND = 80
"""Faults that are worth a round of their own: to start its workers takes as long as twenty of them."""


class Options(NamedTuple):
    """What was asked for."""

    store: str
    modes: tuple[Mode, ...] = MODES
    ways: tuple[str, ...] = ()
    """All that the store has, if none is named."""
    kills: int = 0
    freezes: int = 0
    cuts: int = 0
    server_kills: int = 0
    outages: int = 0
    workers: int = 4
    clients: int = 12
    lease: float = 0.5
    pace: float = 0.1
    successes: int | None = None
    """Keys that must get a response, by each round its share; by default one for every two faults."""
    patience: float = 60.0
    seed: int = 0
    door: Door = "request"

    @property
    def faults(self) -> int:
        return self.kills + self.freezes + self.cuts + self.server_kills + self.outages


class Outcome(NamedTuple):
    counts: Mapping[str, Any]
    violations: Sequence[str]


def check(options: Options) -> type[Target]:
    """The store's class, if it can do what was asked for."""
    store = options.store
    target = targets.find(store)
    if not options.faults:
        raise Unsupported(
            "no fault was asked for: expected a number of kills, freezes, cuts, server kills or outages"
        )
    if options.server_kills and not target.has_server:
        raise Unsupported(f"{store} has no server that could be killed: leave out --server-kills")
    if options.cuts and not target.has_link:
        raise Unsupported(f"{store} has no connections that could be cut: leave out --cuts")
    if options.outages and not target.has_link:
        raise Unsupported(f"{store} has no connections that could be refused: leave out --outages")
    for way in options.ways:
        if way not in target.ways:
            raise Unsupported(f"{store} has no way {way!r}: expected one of {', '.join(target.ways)}")
    known = modes_of(target, options.door)
    for mode in options.modes:
        if mode not in known:
            raise Unsupported(
                f"{store} has no mode {mode!r} of the door {options.door}: expected one of {', '.join(known)}"
            )
    for way in options.ways or target.ways:
        targets.require(target.ways[way], f"the way {way!r} of {store}")
    return target


def modes_of(target: type[Target], door: Door) -> tuple[Mode, ...]:
    """Those that a store can be tested in: an operation may be a part of another one's transaction, and the
    payload of an event may be stored."""
    is_transactional = "tx" in target.modes
    match door:
        case "operation" if is_transactional:
            return (*target.modes, NESTED)
        case "callback":
            return (*target.modes, *((PAYLOAD,) if is_transactional else ()), INBOX)
        case _:
            return tuple(target.modes)


def plans(options: Options, target: type[Target], random: Random) -> list[Plan]:
    """At least one round for each mode, and more if there is enough to do, by different ways."""
    number = max(len(options.modes), options.faults // ROUND)
    ways = list(options.ways or target.ways)
    number = min(number, len(options.modes) * len(ways))
    modes = list(options.modes)
    random.shuffle(ways)
    random.shuffle(modes)
    shares = {name: _shares(getattr(options, name), number, least) for name, least in LEAST.items()}
    # Each mode starts with another way, so that few rounds have many of both.
    chosen: list[tuple[Mode, str]] = [
        (mode, ways[(turn + place) % len(ways)])
        for turn in range(len(ways))
        for place, mode in enumerate(modes)
    ]
    made = [
        Plan(
            mode,
            way,
            **{name: share[turn] for name, share in shares.items()},
            lease=options.lease,
            workers=options.workers,
            clients=options.clients,
            pace=options.pace,
            patience=options.patience,
            door=options.door,
        )
        for turn, (mode, way) in enumerate(chosen[:number])
    ]
    return [plan for plan in made if plan.faults]


def _shares(total: int, number: int, least: int) -> list[int]:
    """Equal but for one; the last ones get none, rather than that one gets less than it is worth."""
    sharing = min(number, max(1, total // least))
    shares = [total * (turn + 1) // sharing - total * turn // sharing for turn in range(sharing)]
    return shares + [0] * (number - sharing)


def execute(
    options: Options,
    target: Target,
    folder: Path,
    began: Callable[[Plan], None] = lambda _: None,
    progress: Callable[[Counter[str]], None] = lambda _: None,
) -> Outcome:
    """All rounds, one after the other; `progress` is called with the faults so far."""
    random = Random(options.seed)
    rotations: dict[Mode, Rotation] = {
        mode: Rotation(mode, options.seed, options.door) for mode in options.modes
    }
    results: list[Result] = []
    done: Counter[str] = Counter()
    for number, plan in enumerate(plans(options, type(target), random), 1):
        began(plan)
        room = folder / f"round-{number}"
        room.mkdir()

        def progress_in_all(now: Counter[str], before: Counter[str] = +done) -> None:
            progress(before + now)

        result = run(target, options.store, plan, rotations[plan.mode], random, room, progress_in_all)
        done += result.done
        results.append(result)
    violations = [
        f"{result.plan.mode}, {result.plan.way}: {violation}"
        for result in results
        for violation in result.violations
    ]
    violations += [
        f"{mode}: {missing}" for mode in options.modes for missing in rotations[mode].unreachable()
    ]
    for result in results:
        violations += [f"{result.plan.mode}, {result.plan.way}: {few}" for few in too_few(options, result)]
    return Outcome({**_counts(results), "named places": _reached(options, rotations)}, violations)


def too_few(options: Options, result: Result) -> list[str]:
    """A round that proves little has failed, whatever the others prove."""
    plan = result.plan
    if options.successes is None:
        wanted = plan.faults // 2
    else:
        wanted = -(-options.successes * plan.faults // options.faults)  # rounded up
    found = {"keys got a response": (result.answered, wanted)}
    if plan.mode not in TRANSACTIONAL:
        found["executions had no excuse"] = (result.unexcused, plan.faults // FAULTS_PER_EXECUTION)
    if plan.mode == "hold" and plan.outages and plan.door == "request":
        found["outages began while a response was flowing"] = (result.places[WHILE_FLOWING], 1)
    return [
        f"only {number} {what}, and {least} were expected: it proves little"
        for what, (number, least) in found.items()
        if number < least
    ]


def _reached(options: Options, rotations: Mapping[Mode, Rotation]) -> dict[str, int]:
    """How often each named place was reached, with 0 for those that never were."""
    interruptions: dict[Interruption, int] = {"kill": options.kills, "stop": options.freezes}
    return {
        f"{mode}: {place}": times
        for mode in options.modes
        for how, asked in interruptions.items()
        if asked
        for place, times in rotations[mode].reached(how).items()
    }


def _counts(results: Sequence[Result]) -> dict[str, Any]:
    done, places, verdicts, rounds = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for result in results:
        done += result.done
        places += result.places
        verdicts += result.verdicts
        rounds[f"{result.plan.mode}, {result.plan.way}"] += 1
    return {
        **{name: done[counted] for counted, name in NAMES.items()},
        "answered": sum(result.answered for result in results),
        "unknown": sum(result.unknown for result in results),
        "requests": verdicts.total(),
        "executions outside": sum(result.executions for result in results),
        "executions without excuse": sum(result.unexcused for result in results),
        "keys undisturbed": sum(result.undisturbed for result in results),
        "audits": sum(result.audits for result in results),
        "histories": sum(result.histories for result in results),
        "slowest recovery": round(max((result.slowest for result in results), default=0.0), 2),
        "verdicts": dict(verdicts.most_common()),
        "places": dict(sorted(places.items())),
        "rounds": dict(rounds),
    }
