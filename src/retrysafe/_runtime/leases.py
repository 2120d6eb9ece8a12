"""The lease keeper: one thread per process that keeps the leases of running handlers alive.

A thread, for blocking and asynchronous handlers alike: an `async def` that blocks its event loop must not
lose its lease.  It starts with the first handler, renews all leases that are due in one batch every third
of a lease, through a connection of its own, and ends when it has had nothing to do for a while.  On its
rounds it also adds to the store's counts of how calls ended and of how often keys were used, for operators.

Renewing a lease is a matter of liveness only.  A lease that is lost all the same does no harm, because every
write is fenced by its token: the attempt is marked as lost, and the handler is not interrupted.
"""

from collections import Counter, deque
from contextlib import suppress
from threading import Event, Lock, Thread, current_thread
from time import monotonic
from typing import NamedTuple

from retrysafe._core.attempt import Attempt
from retrysafe._core.model import DELIVERY_TIMES, Claim, Counted, Deliveries
from retrysafe._runtime import fork
from retrysafe._runtime.log import Log
from retrysafe.stores.contract import Renewer, Store

log = Log("retrysafe.leases")

_FORGOTTEN_LIMIT = 10_000
"""Unconfirmed reservations to be released when the store is back; beyond it they lapse by themselves."""
_BATCH = 200
"""Of them in one step: leases that are alive must not wait for those that are not."""
_STRAGGLER = 5.0
"""So long after the store was last reached, an operation before that has long passed its deadline (2 s), and
either arrived or never will."""

_ROUND = 10.0
"""Seconds between two rounds if no lease asks for more, and between two updates of the store's counts."""

_DELIVERIES = 5_000
"""Records whose deliveries are noted between two rounds: a process that replays more often does not pay for
each with a write."""
_SLICE = 500
"""Records whose deliveries are stored in one step: leases must not wait for them."""

_UNCOUNTED = 500
"""Ends of calls that are noted before they are counted: enough to be cheap, and little memory."""

_PLACES = 500
"""Routes by which calls are counted, each with its door and source.  They are templates, and as many as the
code has; but where a framework gives paths for routes, these fill neither our memory nor a table."""


class Forgotten(NamedTuple):
    """A claim to be released."""

    due: float
    claim: Claim
    again: bool
    """Whether it is to be released once more, a little later."""


class Delivered:
    """How often one record was asked for again."""

    __slots__ = ("number", "times")

    def __init__(self) -> None:
        self.number = 0
        self.times: deque[float] = deque(maxlen=DELIVERY_TIMES)

    def so_far(self) -> Deliveries:
        now = monotonic()
        return Deliveries(self.number, [round(now - time, 3) for time in self.times])


Ended = tuple[str, str, str, str]
"""Verdict, door, route and source of a call: what it is counted by."""


class LeaseKeeper:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.forked()
        fork.watch(self)

    def forked(self) -> None:
        """Begin anew: at first, and in a child process, which inherits neither thread nor leases."""
        self._starting = Lock()
        self._thread: Thread | None = None
        self._wake = Event()
        self._held: dict[bytes, Attempt] = {}
        self._forgotten: deque[Forgotten] = deque(maxlen=_FORGOTTEN_LIMIT)
        self._period = _ROUND
        self._counting = Lock()
        self._counts: Counter[Ended] = Counter()
        self._ended: deque[Ended] = deque()
        """Calls that ended and are not in the counts yet."""
        self._places: set[tuple[str, ...]] = set()
        """Doors, routes and sources that have counts of their own."""
        self._stored: Counter[Ended] = Counter()
        """How many of them the store knows of."""
        self._delivered: dict[bytes, Delivered] = {}
        """When records were asked for again, since that was last stored."""

    def hold(self, attempt: Attempt) -> None:
        """Renew this attempt's lease until it is dropped."""
        claim, lease = attempt.claim, attempt.claim.lease
        attempt.lease_ends = monotonic() + lease
        self._held[claim.token] = attempt
        if lease / 3 < self._period:
            self._period = lease / 3
            self._wake.set()
        if self._thread is None:
            self._start()

    def drop(self, claim: Claim) -> Attempt | None:
        """The attempt is over, one way or another.  Gives it, if its lease was held until now."""
        return self._held.pop(claim.token, None)

    def lasts(self, claim: Claim, seconds: float) -> bool:
        """Whether the lease, as last confirmed, will still be alive in so many seconds."""
        held = self._held.get(claim.token)
        return held is not None and not held.lost and monotonic() + seconds < held.lease_ends

    def forget(self, claim: Claim) -> None:
        """Release a claim that may or may not have been reserved, as soon as the store can be reached.

        And once more a little later: a reservation that was on its way when it was given up may still
        arrive after the first release.  The token makes the second one harmless.  Later than the first one,
        that is, which tells that the store is there: it may have stood still until then, and all that was
        on its way with it.
        """
        self._forgotten.append(Forgotten(monotonic(), claim, again=True))
        self._period = min(self._period, _STRAGGLER)
        if self._thread is None:
            self._start()
        self._wake.set()

    def count(self, ended: Ended) -> None:
        """Count how a call ended."""
        # Appending is atomic and needs no lock, which would cost more than all the rest of the counting.
        self._ended.append(ended)
        if len(self._ended) >= _UNCOUNTED:
            self.counts()
        if self._thread is None:
            self._start()

    def count_delivery(self, id: bytes) -> None:
        """Note that a record was asked for again; of more records than `_DELIVERIES` at once it is not."""
        with self._counting:
            delivered = self._delivered.get(id)
            if delivered is None:
                if len(self._delivered) >= _DELIVERIES:
                    return
                delivered = self._delivered[id] = Delivered()
            delivered.number += 1
            delivered.times.append(monotonic())

    def counts(self) -> dict[Ended, int]:
        """How calls have ended in this process."""
        ended = self._ended
        with self._counting:
            for _ in range(len(ended)):
                each = ended.popleft()
                self._counts[each if each[1:] in self._places else self._bounded(each)] += 1
            return dict(self._counts)

    def _bounded(self, ended: Ended) -> Ended:
        """What a call is counted by whose route is new: those beyond the limit are counted as one."""
        verdict, door, *_ = ended
        if len(self._places) >= _PLACES:
            return verdict, door, "", ""
        self._places.add(ended[1:])
        return ended

    def close(self) -> None:
        """Stop renewing, release what is forgotten, and store what was counted.

        The thread ends by itself; `hold` starts another.
        """
        with self._starting:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._wake.set()
            thread.join(timeout=5)

    def _start(self) -> None:
        with self._starting:
            if self._thread is not None:
                return
            thread = Thread(target=self._run, name="retrysafe-keeper", daemon=True)
            self._thread = thread
            try:
                thread.start()
            except RuntimeError as error:
                # Without a keeper, a lease lapses later, and is fenced as ever.
                self._thread = None
                log.error("leases are not renewed: no thread can be started: %s", error)

    def _run(self) -> None:
        me = current_thread()
        count_at = monotonic() + _ROUND
        renewer: Renewer | None = None
        pause = self._pause()
        while True:
            woken = self._wake.wait(pause)
            self._wake.clear()
            if self._thread is not me or (not woken and self._retire()):
                break
            try:
                if renewer is None:
                    renewer = self._store.open_keeper()
                self._renew(renewer)
                self._release_forgotten(renewer)
                if monotonic() >= count_at:
                    count_at = monotonic() + _ROUND
                    self._store_counts(renewer)
                pause = self._pause()
            except Exception as error:  # noqa: BLE001 - leases depend on this thread: it goes on whatever comes
                # Soon again: a lease has room for two renewals that fail, and the store may be back.
                pause = min(self._pause() / 4, 1.0)
                log.warning("the store could not be reached, trying again in %.1f s: %s", pause, error)
                _close(renewer)
                renewer = None
        self._end(renewer)

    def _retire(self) -> bool:
        """End the thread if it has nothing to do: it would keep its store alive for ever.

        Counts are no reason to stay: they are stored at the end, or else wait for the next thread.
        `hold` notes its lease before it looks for a thread, so one of both sees the other.
        """
        with self._starting:
            me, self._thread = self._thread, None
            if self._held or self._forgotten:
                self._thread = me
            return self._thread is None

    def _pause(self) -> float:
        return min(max(self._period, 0.01), 60.0)

    def _renew(self, renewer: Renewer) -> None:
        began = monotonic()
        # A lease that was taken a moment ago can wait for the next round; most handlers are over by then.
        due = [held for held in tuple(self._held.values()) if self._is_due(held, began)]
        if not due:
            return
        for held, kept in zip(due, renewer.renew([held.claim for held in due]), strict=True):
            if kept:
                held.lease_ends = began + held.claim.lease
            elif held.claim.token in self._held:
                held.lost = True
                self.drop(held.claim)
                log.warning(
                    "attempt %d of record %s lost its lease: the record is another attempt's by now, or gone",
                    held.number,
                    held.claim.id.hex()[:8],
                )

    def _is_due(self, held: Attempt, now: float) -> bool:
        return held.lease_ends - now <= held.claim.lease * 5 / 6

    def _release_forgotten(self, renewer: Renewer) -> None:
        now = monotonic()
        due = [entry for entry in tuple(self._forgotten) if entry.due <= now][:_BATCH]
        if not due:
            return
        renewer.release([entry.claim for entry in due])
        later = monotonic() + _STRAGGLER
        for entry in due:
            with suppress(ValueError):  # there was no more room for it meanwhile
                self._forgotten.remove(entry)
            if entry.again:
                self._forgotten.append(Forgotten(later, entry.claim, again=False))
        self._wake.set()  # there may be more; but the leases that are alive come first again

    def _store_counts(self, renewer: Renewer) -> None:
        new = self._unstored()
        if new:
            renewer.count({Counted(*ended): times for ended, times in new.items()})
            self._stored += new
        with self._counting:
            delivered, self._delivered = list(self._delivered.items()), {}
        for first in range(0, len(delivered), _SLICE):
            renewer.add_deliveries({id: each.so_far() for id, each in delivered[first : first + _SLICE]})

    def _unstored(self) -> Counter[Ended]:
        return Counter(self.counts()) - self._stored

    def _end(self, renewer: Renewer | None) -> None:
        """What cannot wait for another thread, which may never come; trouble is logged and not retried."""
        try:
            renewer = self._release_last(renewer)
            if self._unstored():
                renewer = renewer or self._store.open_keeper()
                self._store_counts(renewer)
        except Exception as error:  # noqa: BLE001 - whatever it is, the connection is closed
            log.warning("counts of how calls ended could not be stored: %s", error)
        finally:
            _close(renewer)

    def _release_last(self, renewer: Renewer | None) -> Renewer | None:
        """Under "hold" a claim that is left behind has an unknown outcome, for weeks.

        They stay noted all the same, for the second time, should there be another thread.
        """
        left = [entry.claim for entry in tuple(self._forgotten)]
        try:
            for first in range(0, len(left), _BATCH):
                renewer = renewer or self._store.open_keeper()
                renewer.release(left[first : first + _BATCH])
        except Exception as error:  # noqa: BLE001 - this was the last try, and there is more to do
            log.warning("%d unused claims could not be released: %s", len(left), error)
            _close(renewer)
            return None
        return renewer


def _close(renewer: Renewer | None) -> None:
    if renewer is not None:
        renewer.close()
