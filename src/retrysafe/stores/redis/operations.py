"""The store's operations, each as the scripts it runs; in the form of `sql/operations.py`.

A call is the name of a script and the commands that it is made of, one for most; its rows are the replies.
"""

import logging
from binascii import unhexlify
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import randrange
from typing import Any, cast

from retrysafe._core.model import (
    DELIVERY_TIMES,
    Claim,
    Counted,
    Deliveries,
    Door,
    Final,
    Found,
    Purged,
    Record,
    Reservation,
    Reserved,
    Response,
    Unsettled,
)
from retrysafe.errors import UnreadableRecord
from retrysafe.stores.queue import Call, Operation, Rows
from retrysafe.stores.redis import records
from retrysafe.stores.redis.scripts import BOOKS, BUCKETS, Command, Layout, Scripts, number_of, packed
from retrysafe.stores.sql import codec

_log = logging.getLogger("retrysafe.store")

_CANDIDATES = 100
"""Records of a bucket that one script looks at: it takes less than a millisecond, in which the server does
nothing else."""


def call(name: str, commands: Sequence[Command]) -> Call:
    return name, {"commands": commands}


def commands_of(call: Call) -> Sequence[Command]:
    return cast("Sequence[Command]", call[1]["commands"])


class Operations:
    """Those of one store: they name its keys and run its scripts."""

    def __init__(self, layout: Layout, scripts: Scripts) -> None:
        self.layout = layout
        self._scripts = scripts.by_name

    # --- the contract

    def reserve(self, claim: Claim) -> Operation[Reservation]:
        arguments = records.bid(claim)
        if claim.inbox is not None and claim.inbox.payload is not None:
            arguments = (*arguments, claim.inbox.payload)  # type: ignore[assignment]
        return _claimed(claim, (yield self._about(claim.id, "reserve", arguments)))

    def take_over(self, claim: Claim, previous: bytes, state: Unsettled) -> Operation[Reservation]:
        inbox = claim.inbox
        payload = None if inbox is None else inbox.payload
        arguments = (
            *records.bid(claim),
            payload or b"",
            b"0" if payload is None else b"1",
            previous,
            b"%d" % records.STATES.index(state),
            b"1" if inbox is not None and inbox.is_only_stored else b"0",
        )
        return _claimed(claim, (yield self._about(claim.id, "take_over", arguments)))

    def look(self, id: bytes) -> Operation[Found | None]:
        [reply] = yield self._about(id, "look", ())
        return None if reply is None else records.found(id, cast("Sequence[Any]", reply))

    def checkpoint(self, claim: Claim, head: Response) -> Operation[bool]:
        arguments = claim.token, records.HOLD.pack(claim.hold, claim.retention), records.head_of(head)
        return _is_done((yield self._about(claim.id, "checkpoint", arguments)))

    def finish(self, claim: Claim, final: Final) -> Operation[bool]:
        arguments = claim.token, *records.outcome(final, claim.retention)
        if (details := records.details(claim, final)) is not None:
            arguments = (*arguments, details)  # type: ignore[assignment]
        return _is_done((yield self._about(claim.id, "finish", arguments)))

    def release(self, claim: Claim) -> Operation[None]:
        yield self._about(claim.id, "release", (claim.token,))

    def purge(self, limit: int, door: Door | None = None) -> Operation[Purged]:
        return (yield from self.purge_noted(limit, door, ()))

    # --- the lease keeper's

    def release_all(self, claims: Sequence[Claim]) -> Operation[None]:
        yield call("release", [self.command(claim.id, "release", (claim.token,)) for claim in claims])

    def renew_all(self, claims: Sequence[Claim]) -> Operation[list[bool]]:
        renewals = [self.command(c.id, "renew", (c.token, repr(c.lease).encode())) for c in claims]
        replies = cast("Sequence[int]", (yield call("renew", renewals)))
        return [reply == 1 for reply in replies]

    def add_calls(self, ended: Mapping[Counted, int]) -> Operation[None]:
        numbers: list[bytes] = []
        for place, number in codec.counted(ended):
            numbers += codec.json(place).encode(), b"%d" % number
        yield self.about_books("count", [self.layout.calls], numbers)

    def add_deliveries(self, asked: Mapping[bytes, Deliveries]) -> Operation[None]:
        commands = [
            self.command(
                id,
                "deliveries",
                (b"%d" % number, b"%d" % DELIVERY_TIMES, *(repr(seconds).encode() for seconds in ago)),
            )
            for id, (number, ago) in asked.items()
        ]
        yield call("deliveries", commands)

    # --- cleanup

    def claim_cleanup(self, turn: float, longest: float) -> Operation[bool]:
        arguments = repr(turn).encode(), repr(longest).encode()
        return _is_done((yield self.about_books("claim_cleanup", [self.layout.cleanup], arguments)))

    def postpone_cleanup(self, pause: float) -> Operation[None]:
        yield self.about_books("postpone_cleanup", [self.layout.cleanup], [repr(pause).encode()])

    def expired_candidates(self, offsets: Mapping[int, int], limit: int) -> Operation[dict[int, list[bytes]]]:
        """Identities in these buckets whose expiry is to be looked at, the first at these places."""
        each = b"%d" % min(limit, _CANDIDATES)
        numbers = list(offsets)
        commands = [
            self.about_bucket(number, "list_expired", (), (b"%d" % offsets[number], each))
            for number in numbers
        ]
        replies = yield call("list_expired", commands)
        found = zip(numbers, cast("Sequence[list[bytes]]", replies), strict=True)
        return {number: identities(names) for number, names in found if names}

    def purge_noted(self, limit: int, door: Door | None, note: Sequence[bytes]) -> Operation[Purged]:
        """Remove expired records, bucket by bucket; with a note, what was removed is noted in the same step.

        It begins anywhere, so that processes which clean up at the same moment share the work.  Where much
        has expired a few buckets have enough; where little has, each round asks twice as many as the last.
        """
        removed, unresolved = 0, list[Record]()
        first = randrange(BUCKETS)  # noqa: S311 - nothing is to be kept secret
        unasked = deque((first + place) % BUCKETS for place in range(BUCKETS))
        offsets: dict[int, int] = {}
        at_once = 2 * -(-limit // _CANDIDATES)
        while (offsets or unasked) and removed < limit:
            while unasked and len(offsets) < at_once:
                offsets[unasked.popleft()] = 0
            at_once *= 2
            candidates: dict[int, list[bytes]] = yield from self.expired_candidates(offsets, limit - removed)
            offsets = {number: offsets[number] for number in candidates}
            steps = list(_up_to(limit - removed, candidates))
            if not steps:
                continue
            replies = yield call("purge", [self._purge(number, ids, door, note) for number, ids in steps])
            for (number, _), reply in zip(steps, cast("Sequence[list[Any]]", replies), strict=True):
                count, stayed, lost, *found = reply
                removed += count
                offsets[number] += stayed
                unresolved += _unresolved(found)
                if lost:
                    _log.warning(
                        "%d records had disappeared before a cleanup came by: evicted, or removed by another",
                        lost,
                    )
        return Purged(removed, tuple(unresolved))

    def _purge(self, number: int, ids: Sequence[bytes], door: Door | None, note: Sequence[bytes]) -> Command:
        bucket = self.layout.buckets[number]
        keys = [bucket.audit, *map(bucket.record_of, ids)]
        return self.about_bucket(number, "purge", keys, ((door or "").encode(), *note))

    # --- commands

    def command(self, id: bytes, script: str, arguments: Sequence[bytes]) -> Command:
        """A script about one record."""
        number = number_of(id)
        bucket = self.layout.buckets[number]
        key = bucket.record_of(id)
        head = self._scripts[script].head(4, len(arguments))
        return Command(
            number,
            b"".join(
                [
                    head,
                    bucket.packed,
                    b"$%d\r\n%b\r\n" % (len(key), key),
                    *[b"$%d\r\n%b\r\n" % (len(word), word) for word in arguments],
                ]
            ),
        )

    def about_bucket(
        self, number: int, script: str, keys: Sequence[bytes], arguments: Sequence[bytes]
    ) -> Command:
        bucket = self.layout.all[number]
        head = self._scripts[script].head(3 + len(keys), len(arguments))
        return Command(number, head + bucket.packed + packed(keys) + packed(arguments))

    def about_books(self, script: str, keys: Sequence[bytes], arguments: Sequence[bytes]) -> Call:
        return call(script, [self.about_bucket(BOOKS, script, keys, arguments)])

    def _about(self, id: bytes, script: str, arguments: Sequence[bytes]) -> Call:
        return script, {"commands": (self.command(id, script, arguments),)}


def identities(names: Sequence[bytes]) -> list[bytes]:
    """As they are in the sorted sets: in hexadecimal."""
    return [unhexlify(name) for name in names]


def _is_done(replies: Rows) -> bool:
    done: object = replies[0]
    return done == 1


def _claimed(claim: Claim, replies: Rows) -> Reservation:
    [reply] = replies
    if isinstance(reply, int):
        return Reserved(reply)
    return records.found(claim.id, reply)


def _up_to(limit: int, candidates: Mapping[int, Sequence[bytes]]) -> Iterator[tuple[int, Sequence[bytes]]]:
    for number, ids in candidates.items():
        if limit <= 0:
            return
        yield number, ids[:limit]
        limit -= len(ids)


def _unresolved(found: Iterable[Sequence[Any]]) -> Iterator[Record]:
    for id, *stored in found:
        try:
            yield records.record(unhexlify(id), stored)
        except UnreadableRecord as damage:
            _log.warning("removed an expired record that could not be read: %s", damage)
