"""A whole run: what was asked for, shared among campaigns, and what came of all of them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tools.crash import targets
from tools.crash.modes import MODES, Aims, Mode, Stroke
from tools.crash.rounds import Plan, Result, run
from tools.crash.targets import Target, Unfit

LEAST = {"kills": 1, "freezes": 1, "cuts": 10, "server_kills": 1}
"""Of each kind of stroke, what a campaign should have if it has any.  Where connections can be cut, all that
is said to the database goes through our hands, and takes its time there."""

NAMES = {"kill": "kills", "stop": "freezes", "cut": "cuts", "server kill": "server kills"}
"""As they are counted while they happen, and as they are reported."""

ACCOUNTABLE = 10
"""Strokes for each execution that nothing can have excused, at most.  Most are at workers that were just
born, and some of these are so slow that they may have lost a lease."""

CAMPAIGN = 80
"""Strokes that are worth a campaign of their own: to start a fleet takes as long as twenty of them."""


class Wish(NamedTuple):
    """What was asked for."""

    store: str
    modes: tuple[Mode, ...] = MODES
    ways: tuple[str, ...] = ()
    """All that the store has, if none is named."""
    kills: int = 0
    freezes: int = 0
    cuts: int = 0
    server_kills: int = 0
    workers: int = 4
    customers: int = 12
    lease: float = 0.5
    pace: float = 0.1
    successes: int | None = None
    """Keys that must have been answered, by each campaign its share; by default one for every two strokes."""
    patience: float = 60.0
    seed: int = 0

    @property
    def strokes(self) -> int:
        return self.kills + self.freezes + self.cuts + self.server_kills


class Tally(NamedTuple):
    """What came of it."""

    counts: Mapping[str, Any]
    violations: Sequence[str]


def check(wish: Wish) -> type[Target]:
    """The store's class, if what was asked for can be done with it."""
    target = targets.find(wish.store)
    if not wish.strokes:
        raise Unfit("nothing was asked for: say how many kills, freezes, cuts or server kills")
    if wish.server_kills and not target.has_server:
        raise Unfit(f"{wish.store} has no server that could be killed: leave out --server-kills")
    if wish.cuts and not target.has_cable:
        raise Unfit(f"{wish.store} has no connections that could be cut: leave out --cuts")
    for way in wish.ways:
        if way not in target.ways:
            raise Unfit(f"{wish.store} has no way {way!r}: expected one of {', '.join(target.ways)}")
    for mode in wish.modes:
        if mode not in target.modes:
            raise Unfit(f"{wish.store} has no mode {mode!r}: expected one of {', '.join(target.modes)}")
    for way in wish.ways or target.ways:
        targets.require(target.ways[way], f"the way {way!r} of {wish.store}")
    return target


def plans(wish: Wish, target: type[Target], random: Random) -> list[Plan]:
    """At least one campaign for each mode, and more if there is enough to do, by different ways."""
    number = max(len(wish.modes), wish.strokes // CAMPAIGN)
    ways = list(wish.ways or target.ways)
    number = min(number, len(wish.modes) * len(ways))
    modes = list(wish.modes)
    random.shuffle(ways)
    random.shuffle(modes)
    shares = {name: _shares(getattr(wish, name), number, least) for name, least in LEAST.items()}
    # Each mode starts with another way, so that few campaigns have many of both.
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
            lease=wish.lease,
            workers=wish.workers,
            customers=wish.customers,
            pace=wish.pace,
            patience=wish.patience,
        )
        for turn, (mode, way) in enumerate(chosen[:number])
    ]
    return [plan for plan in made if plan.strokes]


def _shares(total: int, number: int, least: int) -> list[int]:
    """Equal but for one; the last ones go without, rather than that any has less than it is worth."""
    sharing = min(number, max(1, total // least))
    shares = [total * (turn + 1) // sharing - total * turn // sharing for turn in range(sharing)]
    return shares + [0] * (number - sharing)


def carry_out(
    wish: Wish,
    target: Target,
    folder: Path,
    began: Callable[[Plan], None] = lambda _: None,
    tell: Callable[[Counter[str]], None] = lambda _: None,
) -> Tally:
    """All campaigns, one after the other; `tell` hears what has been done so far."""
    random = Random(wish.seed)
    aims: dict[Mode, Aims] = {mode: Aims(mode, wish.seed) for mode in wish.modes}
    results: list[Result] = []
    done: Counter[str] = Counter()
    for number, plan in enumerate(plans(wish, type(target), random), 1):
        began(plan)
        room = folder / f"campaign-{number}"
        room.mkdir()

        def tell_all(now: Counter[str], before: Counter[str] = +done) -> None:
            tell(before + now)

        result = run(target, wish.store, plan, aims[plan.mode], random, room, tell_all)
        done += result.done
        results.append(result)
    wrongs = [
        f"{result.plan.mode}, {result.plan.way}: {wrong}" for result in results for wrong in result.wrongs
    ]
    wrongs += [f"{mode}: {missing}" for mode in wish.modes for missing in aims[mode].unreachable()]
    for result in results:
        wrongs += [f"{result.plan.mode}, {result.plan.way}: {few}" for few in too_few(wish, result)]
    return Tally({**_counts(results), "named places": _reached(wish, aims)}, wrongs)


def too_few(wish: Wish, result: Result) -> list[str]:
    """A campaign that proves little has failed, whatever the others prove."""
    plan = result.plan
    if wish.successes is None:
        wanted = plan.strokes // 2
    else:
        wanted = -(-wish.successes * plan.strokes // wish.strokes)  # upwards, so that all together suffice
    found = {"keys were answered": (result.answered, wanted)}
    if plan.mode != "tx":
        found["executions had no excuse"] = (result.accountable, plan.strokes // ACCOUNTABLE)
    return [
        f"only {number} {what}, and {least} were expected: it proves little"
        for what, (number, least) in found.items()
        if number < least
    ]


def _reached(wish: Wish, aims: Mapping[Mode, Aims]) -> dict[str, int]:
    """How often each named place was, and those that never were."""
    strokes: dict[Stroke, int] = {"kill": wish.kills, "stop": wish.freezes}
    return {
        f"{mode}: {place}": times
        for mode in wish.modes
        for how, asked in strokes.items()
        if asked
        for place, times in aims[mode].reached(how).items()
    }


def _counts(results: Sequence[Result]) -> dict[str, Any]:
    done, places, verdicts, campaigns = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for result in results:
        done += result.done
        places += result.places
        verdicts += result.verdicts
        campaigns[f"{result.plan.mode}, {result.plan.way}"] += 1
    return {
        **{name: done[counted] for counted, name in NAMES.items()},
        "answered": sum(result.answered for result in results),
        "unknown": sum(result.unknown for result in results),
        "requests": verdicts.total(),
        "executions outside": sum(result.executions for result in results),
        "executions without excuse": sum(result.accountable for result in results),
        "keys undisturbed": sum(result.undisturbed for result in results),
        "audits": sum(result.audits for result in results),
        "histories": sum(result.histories for result in results),
        "slowest recovery": round(max((result.slowest for result in results), default=0.0), 2),
        "verdicts": dict(verdicts.most_common()),
        "places": dict(sorted(places.items())),
        "campaigns": dict(campaigns),
    }
