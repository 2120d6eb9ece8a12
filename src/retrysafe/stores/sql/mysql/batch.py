"""The calls of a batch as SQL, and what came of it as the rows of each call.

Steps that belong together are given to an executor at once, which may send them as one text: the reservations
as one insert, the completions as one locking look and one update, then the statements of all other calls.
Where more than one of them writes or locks, they are one transaction; otherwise that one commits by itself.
What only reads comes after it, and so does the look at what came of the reservations.

A batch waits for as little as possible, because all its callers do.  Completions skip rows that are locked,
and reservations skip keys that another transaction is storing.  Those calls have trouble of their own, and
are run by themselves: first without waiting for any lock, then with all the time that is left.

Rows are matched by id, never by their order.  Few calls take a second round trip: those that change only what
they found not locked by others, and a reservation whose key has an expired record.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import groupby
from json import loads
from typing import Any, Literal, TypeVar

from retrysafe.stores.queue import Arguments, Call, Outcome, Rows
from retrysafe.stores.retry import Trouble
from retrysafe.stores.sql import codec
from retrysafe.stores.sql.mysql import rows
from retrysafe.stores.sql.mysql.retry import LOCK_TIMEOUT, LOCKED, MySQLTrouble
from retrysafe.stores.sql.mysql.texts import Always, Pairs, Part, Repeated, Step, Text, Values, table, texts

T = TypeVar("T")

BEGIN = Step(Text("START TRANSACTION"), {})
COMMIT = Step(Text("COMMIT"), {})
ROLLBACK = Step(Text("ROLLBACK"), {})
UNCOMMITTED = Step(Text("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED"), {})
"""For the next transaction alone.  Nothing that it reads is told to anyone: it lets an insert pass over keys
that another transaction is about to store, instead of waiting for it."""

Conversation = Generator[Sequence[Step], Sequence[Rows], T]
"""Yields steps, and receives the rows of each: none where it gives none."""

_IDENTITY = ("id", "token")
_CLAIM = tuple(
    "fingerprint mode lease retention hold door scope key action target request_id correlation_id details"
    " retention_from payload due_in".split()
)
_OUTCOME = ("state", "status", "headers", "body", "omitted", "details", "retention")

Manner = Literal["together", "at once", "patiently"]
"""How a call waits for locks: as one of a batch; alone, and not at all; alone, with the session's
patience."""


def manner(patience: float, *, alone: bool) -> Manner:
    if not alone:
        return "together"
    return "patiently" if patience >= 1.0 else "at once"


def converse(calls: Sequence[Call], how: Manner) -> Conversation[list[Outcome]]:
    """Run these calls, all of them or none; their outcomes."""
    outcomes: list[Outcome] = [()] * len(calls)
    shares = _shares(calls, how)
    before = [UNCOMMITTED] if any(share.passes_over for share in shares) else []
    steps, after = _steps(shares), [step for share in shares for step in share.after]
    try:
        if any(share.follows for share in shares):
            _, found = yield from _said([*before, BEGIN], steps)
            later = _taken(shares, found, outcomes)
            _, _, looked = yield from _said(_steps(later), [COMMIT], after)
        else:
            begin, end = ([BEGIN], [COMMIT]) if sum(step.text.locks for step in steps) > 1 else ([], [])
            _, found, _, looked = yield from _said([*before, *begin], steps, end, after)
            _taken(shares, found, outcomes)
        expired = _looked(shares, looked, outcomes)
        if expired:
            _, found, _ = yield from _said([BEGIN], _steps(expired), [COMMIT])
            _taken(expired, found, outcomes)
    except Trouble as trouble:
        if not trouble.disconnected:
            yield [ROLLBACK]
        if how == "at once" and calls[0][0] == "reserve" and _is_of_lock(trouble):
            raise _locked("another transaction is storing or deleting a record of this key") from trouble
        raise
    return outcomes


def within(name: str, arguments: Mapping[str, object]) -> Conversation[Rows]:
    """One call in a transaction that is open already, or that needs none; its rows."""
    outcomes: list[Outcome] = [()]
    [share] = _shares([(name, dict(arguments))], "patiently")
    found, looked = yield from _said(share.steps, share.after)
    later = share.take(found, outcomes)
    share.look(looked, outcomes)
    if later:
        yield _steps(later)
    [outcome] = outcomes
    assert not isinstance(outcome, Exception)
    return outcome


def _said(*sections: Sequence[Step]) -> Conversation[list[Sequence[Rows]]]:
    """Say all of this at once; the rows of each section."""
    found = yield [step for section in sections for step in section]
    parts: list[Sequence[Rows]] = []
    place = 0
    for section in sections:
        end = place + len(section)
        parts.append(found[place:end])
        place = end
    return parts


def _steps(shares: Sequence["_Share"]) -> list[Step]:
    return [step for share in shares for step in share.steps]


def _taken(shares: Sequence["_Share"], found: Sequence[Rows], outcomes: list[Outcome]) -> Sequence["_Share"]:
    """Give each share the rows of its steps; what follows from them in the same transaction."""
    later: list[_Share] = []
    place = 0
    for share in shares:
        end = place + len(share.steps)
        later += share.take(found[place:end], outcomes)
        place = end
    return later


def _looked(shares: Sequence["_Share"], found: Sequence[Rows], outcomes: list[Outcome]) -> Sequence["_Share"]:
    """The same of what was read after the transaction."""
    later: list[_Share] = []
    place = 0
    for share in shares:
        end = place + len(share.after)
        later += share.look(found[place:end], outcomes)
        place = end
    return later


# --- what one call, or several of a kind, have in a batch


class _Share:
    follows = False
    """Whether something may follow in the same transaction when it is known what was found."""
    passes_over = False
    """Whether it leaves out keys that another transaction is storing."""

    def __init__(self, steps: Sequence[Step], after: Sequence[Step] = ()) -> None:
        self.steps = steps
        self.after = after
        """What reads only, when everything is committed."""

    def take(self, found: Sequence[Rows], outcomes: list[Outcome]) -> Sequence["_Share"]:  # noqa: ARG002
        return ()

    def look(self, found: Sequence[Rows], outcomes: list[Outcome]) -> Sequence["_Share"]:  # noqa: ARG002
        return ()


class _One(_Share):
    """A call whose rows are those of its SELECTs."""

    def __init__(
        self,
        place: int,
        name: str,
        steps: Sequence[Step],
        follow: "Callable[[Rows], Sequence[_Share]] | None" = None,
    ) -> None:
        writes = any(step.text.locks for step in steps)
        super().__init__(*((steps, ()) if writes else ((), steps)))
        self.follows = follow is not None
        self._place = place
        self._name = name
        self._follow = follow

    def take(self, found: Sequence[Rows], outcomes: list[Outcome]) -> Sequence[_Share]:
        if not self.steps:
            return ()
        all_found = [row for each in found for row in each]
        outcomes[self._place] = rows.read(self._name, all_found)
        return self._follow(all_found) if self._follow is not None and all_found else ()

    def look(self, found: Sequence[Rows], outcomes: list[Outcome]) -> Sequence[_Share]:
        if self.after:
            outcomes[self._place] = rows.read(self._name, [row for each in found for row in each])
        return ()


class _Reserve(_Share):
    def __init__(self, of: Sequence[tuple[int, Arguments]], how: Manner) -> None:
        self._how: Manner = how
        self.passes_over = how != "patiently"
        self._of = {arguments["id"]: (place, arguments) for place, arguments in of}
        bids = [arguments for _, arguments in of]
        insert, look = steps_of("reserve", {**table(bids, _IDENTITY, _CLAIM), **_named(bids)})
        # Alone, it does not wait for another transaction that is deleting a record of its key.
        locking = _locking(bids[0], how) if how == "at once" else ()
        super().__init__([*locking, insert], [look])

    def look(self, found: Sequence[Rows], outcomes: list[Outcome]) -> Sequence[_Share]:
        if self.passes_over:
            for place, _ in self._of.values():
                outcomes[place] = _locked("another transaction is storing a record of this key")
        expired: list[_Share] = []
        for row in found[0]:
            id, outcome = rows.reserved(row)
            place, arguments = self._of[id]
            if outcome is None:
                outcomes[place] = ()
                expired.append(_Replace(place, arguments, self._how))
            else:
                outcomes[place] = outcome
        return expired


class _Replace(_Share):
    """A reservation of a key whose record has expired."""

    def __init__(self, place: int, arguments: Arguments, how: Manner) -> None:
        self._place = place
        replace = steps_of("replace_expired", {**arguments, **_named([arguments])})
        super().__init__([*_locking(arguments, how), *replace])

    def take(self, found: Sequence[Rows], outcomes: list[Outcome]) -> Sequence[_Share]:
        for row in found[-1]:
            _, outcome = rows.reserved(row)
            if outcome is not None:  # otherwise it has expired again, and the operation looks for it
                outcomes[self._place] = outcome
        return ()


class _Finish(_Share):
    def __init__(self, of: Sequence[tuple[int, Arguments]]) -> None:
        self._places = {arguments["id"]: place for place, arguments in of}
        finals = [arguments for _, arguments in of]
        super().__init__(steps_of("finish", {**table(finals, _IDENTITY, _OUTCOME), **_named(finals)}))

    def take(self, found: Sequence[Rows], outcomes: list[Outcome]) -> Sequence[_Share]:
        for place in self._places.values():
            outcomes[place] = _locked("the record is locked by another transaction, or not as it was")
        for (id,) in found[0]:
            outcomes[self._places[id]] = [(1,)]
        return ()


def _locked(reason: str) -> Trouble:
    return MySQLTrouble(reason, LOCK_TIMEOUT)


def _is_of_lock(trouble: Trouble) -> bool:
    return isinstance(trouble, MySQLTrouble) and trouble.code in (LOCK_TIMEOUT, LOCKED)


def _shares(calls: Sequence[Call], how: Manner) -> Sequence[_Share]:
    reserves: list[tuple[int, Arguments]] = []
    finishes: list[tuple[int, Arguments]] = []
    others: list[_Share] = []
    for place, (name, arguments) in enumerate(calls):
        if name == "reserve":
            reserves.append((place, arguments))
        elif name == "finish" and how == "together":
            finishes.append((place, arguments))
        else:
            others.append(_one(place, name, arguments, how))
    many: list[_Share] = []
    if reserves:
        many.append(_Reserve(reserves, how))
    if finishes:
        many.append(_Finish(finishes))
    return [*many, *others]


def steps_of(name: str, arguments: Mapping[str, object]) -> Sequence[Step]:
    return [Step(text, arguments) for text in texts(name)]


# --- calls whose arguments are lists, or that change only what they found


def _one(place: int, name: str, arguments: Arguments, how: Manner) -> _Share:
    # Alone, a completion is told from one that is fenced, so it may wait; and it may be late.
    steps = steps_of("finish_late" if name == "finish" else name, prepare(name, arguments))
    if how != "patiently":
        steps = [step.at_once() for step in steps]
    match name:
        case "take_over":
            return _One(place, name, [*_locking(arguments, how), *steps])
        case "purge":
            return _One(place, name, steps, _purge_found)
        case "claim_cleanup":
            return _One(place, name, steps, lambda _: [_Share(steps_of("cleanup_claimed", arguments))])
        case "renew":
            return _One(place, name, steps, lambda found: _renew_found(_claims(arguments), found))
        case "add_deliveries":
            return _One(place, name, steps, lambda found: _add_deliveries(_deliveries(arguments), found))
        case _:
            return _One(place, name, steps)


def _locking(arguments: Arguments, how: Manner) -> Sequence[Step]:
    """Before a statement that would wait for the lock of its row."""
    return () if how == "patiently" else steps_of("lock", {"id": arguments["id"]})


def prepare(name: str, arguments: Mapping[str, Any]) -> Mapping[str, object]:
    """The arguments of an operation as the statement of this name has them."""
    match name:
        case "renew" | "settled" | "release_all":
            return _named(_claims(arguments))
        case "add_deliveries":
            return {"ids": Values(_deliveries(arguments))}
        case "add_calls":
            return table(_calls(arguments), ["number"], ["door", "route", "source", "verdict"])
        case "add_verdicts":
            numbers = sorted(loads(arguments["verdicts"]).items())
            of = [{"verdict": verdict, "number": number} for verdict, number in numbers]
            return table(of, ["number"], ["verdict"])
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
