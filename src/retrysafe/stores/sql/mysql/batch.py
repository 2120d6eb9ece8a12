"""The calls of a batch as SQL, and what came of it as the rows of each call.

Steps that belong together are given to an executor at once, which may send them as one text: the reservations
as one insert and one look at what came of it, the completions as one locking look and one update, then the
statements of all other calls.  Where more than one of them writes or locks, they are one transaction;
otherwise that one commits by itself.

Rows are matched by id, never by their order.  Few calls take a second round trip: those that change only what
they found not locked by others, and a reservation whose key has an expired record.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import groupby
from json import loads
from typing import Any, TypeVar

from retrysafe.stores.queue import Arguments, Call, Outcome, Rows
from retrysafe.stores.retry import Trouble
from retrysafe.stores.sql import codec
from retrysafe.stores.sql.mysql import rows
from retrysafe.stores.sql.mysql.texts import Always, Pairs, Part, Repeated, Step, Text, Values, texts

T = TypeVar("T")

BEGIN = Step(Text("START TRANSACTION"), {})
COMMIT = Step(Text("COMMIT"), {})
ROLLBACK = Step(Text("ROLLBACK"), {})

Conversation = Generator[Sequence[Step], Sequence[Rows], T]
"""Yields steps, and receives the rows of each, none where it gives none."""


def converse(calls: Sequence[Call]) -> Conversation[list[Outcome]]:
    """Run these calls, all of them or none; their outcomes."""
    outcomes: list[Outcome] = [()] * len(calls)
    shares = _shares(calls)
    steps = _steps(shares)
    follows = any(share.follows for share in shares)
    alone = not follows and sum(step.text.locks for step in steps) < 2
    try:
        if alone:
            later = _taken(shares, (yield steps), outcomes)
        elif not follows:
            _, *found, _ = yield [BEGIN, *steps, COMMIT]
            later = _taken(shares, found, outcomes)
        else:
            _, *found = yield [BEGIN, *steps]
            later = _taken(shares, found, outcomes)
            *found, _ = yield [*_steps(later), COMMIT]
            _taken(later, found, outcomes)
            return outcomes
        if later:
            _, *found, _ = yield [BEGIN, *_steps(later), COMMIT]
            _taken(later, found, outcomes)
    except Trouble as trouble:
        if not trouble.disconnected:
            yield [ROLLBACK]
        raise
    return outcomes


def within(name: str, arguments: Mapping[str, object]) -> Conversation[Rows]:
    """One call in a transaction that is open already, or that needs none; its rows."""
    outcomes: list[Outcome] = [()]
    [share] = _shares([(name, dict(arguments))])
    later = share.take((yield share.steps), outcomes)
    if later:
        yield _steps(later)
    [outcome] = outcomes
    assert not isinstance(outcome, Exception)
    return outcome


def _steps(shares: Sequence["_Share"]) -> list[Step]:
    return [step for share in shares for step in share.steps]


def _taken(shares: Sequence["_Share"], found: Sequence[Rows], outcomes: list[Outcome]) -> Sequence["_Share"]:
    """Give each share the rows of its steps; what follows from them."""
    later: list[_Share] = []
    place = 0
    for share in shares:
        end = place + len(share.steps)
        later += share.take(found[place:end], outcomes)
        place = end
    return later


# --- what one call, or several of a kind, have in a batch


class _Share:
    follows = False
    """Whether something may follow in the same transaction when it is known what was found."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps

    def take(self, found: Sequence[Rows], outcomes: list[Outcome]) -> Sequence["_Share"]:  # noqa: ARG002
        """Take what came of its steps; what follows from it."""
        return ()


class _One(_Share):
    """A call whose rows are those of its SELECTs."""

    def __init__(
        self,
        place: int,
        name: str,
        arguments: Mapping[str, object],
        follow: "Callable[[Rows], Sequence[_Share]] | None" = None,
    ) -> None:
        super().__init__(steps_of(name, arguments))
        self.follows = follow is not None
        self._place = place
        self._name = name
        self._follow = follow

    def take(self, found: Sequence[Rows], outcomes: list[Outcome]) -> Sequence[_Share]:
        all_found = [row for each in found for row in each]
        outcomes[self._place] = rows.read(self._name, all_found)
        return self._follow(all_found) if self._follow is not None and all_found else ()


class _Reserve(_Share):
    def __init__(self, of: Sequence[tuple[int, Arguments]]) -> None:
        self._of = {arguments["id"]: (place, arguments) for place, arguments in of}
        bids = [arguments for _, arguments in of]
        super().__init__(steps_of("reserve", {"bids": Repeated("bid", bids), **_named(bids)}))

    def take(self, found: Sequence[Rows], outcomes: list[Outcome]) -> Sequence[_Share]:
        expired: list[_Share] = []
        for row in found[-1]:
            id, outcome = rows.reserved(row)
            place, arguments = self._of[id]
            if outcome is None:
                expired.append(_Replace(place, arguments))
            else:
                outcomes[place] = outcome
        return expired


class _Replace(_Share):
    """A reservation of a key whose record has expired."""

    def __init__(self, place: int, arguments: Arguments) -> None:
        self._place = place
        super().__init__(steps_of("replace_expired", {**arguments, **_named([arguments])}))

    def take(self, found: Sequence[Rows], outcomes: list[Outcome]) -> Sequence[_Share]:
        for row in found[-1]:
            _, outcome = rows.reserved(row)
            if outcome is not None:  # otherwise it has expired again, and the operation does too
                outcomes[self._place] = outcome
        return ()


class _Finish(_Share):
    def __init__(self, of: Sequence[tuple[int, Arguments]]) -> None:
        self._places = {arguments["id"]: place for place, arguments in of}
        finals = [arguments for _, arguments in of]
        super().__init__(steps_of("finish", {"finals": Repeated("final", finals), **_named(finals)}))

    def take(self, found: Sequence[Rows], outcomes: list[Outcome]) -> Sequence[_Share]:
        for (id,) in found[0]:
            outcomes[self._places[id]] = [(1,)]
        return ()


def _shares(calls: Sequence[Call]) -> Sequence[_Share]:
    reserves: list[tuple[int, Arguments]] = []
    finishes: list[tuple[int, Arguments]] = []
    others: list[_Share] = []
    for place, (name, arguments) in enumerate(calls):
        if name == "reserve":
            reserves.append((place, arguments))
        elif name == "finish":
            finishes.append((place, arguments))
        else:
            others.append(_one(place, name, arguments))
    many: list[_Share] = []
    if reserves:
        many.append(_Reserve(reserves))
    if finishes:
        many.append(_Finish(finishes))
    return [*many, *others]


def steps_of(name: str, arguments: Mapping[str, object]) -> Sequence[Step]:
    return [Step(text, arguments) for text in texts(name)]


# --- calls whose arguments are lists, or that change only what they found


def _one(place: int, name: str, arguments: Arguments) -> _Share:
    prepared = prepare(name, arguments)
    match name:
        case "purge":
            return _One(place, name, prepared, _purge_found)
        case "claim_cleanup":
            return _One(place, name, prepared, lambda _: [_Share(steps_of("cleanup_claimed", arguments))])
        case "renew":
            return _One(place, name, prepared, lambda found: _renew_found(_claims(arguments), found))
        case "add_deliveries":
            return _One(place, name, prepared, lambda found: _add_deliveries(_deliveries(arguments), found))
        case _:
            return _One(place, name, prepared)


def prepare(name: str, arguments: Mapping[str, Any]) -> Mapping[str, object]:
    """The arguments of an operation as the statement of this name has them."""
    match name:
        case "renew" | "settled" | "release_all":
            return _named(_claims(arguments))
        case "add_deliveries":
            return {"ids": Values(_deliveries(arguments))}
        case "add_calls":
            return {"calls": Repeated("call", _calls(arguments))}
        case "add_verdicts":
            numbers = sorted(loads(arguments["verdicts"]).items())
            of = [{"verdict": verdict, "number": number} for verdict, number in numbers]
            return {"verdicts": Repeated("call_by_verdict", of)}
        case _ if name.startswith("list_records"):
            return {**arguments, "parts": _parts(arguments)}
        case _:
            return arguments


def _named(of: Sequence[Mapping[str, object]]) -> dict[str, Part]:
    return {
        "ids": Values(each["id"] for each in of),
        "pairs": Pairs((each["id"], each["token"]) for each in of),
    }


def _claims(arguments: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Those of `codec.batch`, in the order of their ids."""
    return [
        {"id": bytes.fromhex(id), "token": bytes.fromhex(token), "lease": lease}
        for id, token, lease, _ in sorted(loads(arguments["claims"]))
    ]


def _deliveries(arguments: Mapping[str, Any]) -> Mapping[bytes, tuple[int, Sequence[float]]]:
    """Those of `codec.deliveries`."""
    return {bytes.fromhex(id): (number, ago) for id, number, ago in loads(arguments["deliveries"])}


def _calls(arguments: Mapping[str, Any]) -> Sequence[Mapping[str, object]]:
    """Those of `codec.calls`."""
    columns = ("door", "route", "source", "verdict", "number")
    return [dict(zip(columns, each, strict=True)) for each in loads(arguments["calls"])]


def _parts(arguments: Mapping[str, Any]) -> Part:
    """That a scope has each of the parts that are asked for."""
    if arguments["scope"] is None:
        return Always()
    wanted = [{"part": codec.json(part)} for part in loads(arguments["scope"])]
    return Repeated("part_of_scope", wanted, between=" AND ")


def _purge_found(found: Rows) -> Sequence[_Share]:
    # In the order in which other statements lock them, too.
    return [_Share(steps_of("purge_found", {"ids": Values(sorted(_id(row[0]) for row in found))}))]


def _renew_found(claims: Sequence[Mapping[str, Any]], found: Rows) -> Sequence[_Share]:
    """One statement for each length of a lease."""
    there = {(id, token) for id, token in found}
    kept = sorted((each["lease"], each["id"]) for each in claims if (each["id"], each["token"]) in there)
    return [
        _Share(steps_of("renew_found", {"lease": lease, "ids": Values(id for _, id in group)}))
        for lease, group in groupby(kept, key=lambda each: each[0])
    ]


def _add_deliveries(asked: Mapping[bytes, tuple[int, Sequence[float]]], found: Rows) -> Sequence[_Share]:
    shares: list[_Share] = []
    for (found_id,) in found:
        id = _id(found_id)
        number, ago = asked[id]
        times = Repeated("delivery_time", [{"ago": each} for each in ago], between=", ")
        arguments = {"id": id, "number": number, "ago": ago[-1], "times": times}
        shares.append(_Share(steps_of("add_delivery", arguments)))
    return shares


def _id(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value
