"""The crash: the server is killed in the middle of payments, and an operator settles those in doubt.

No layer can know whether a payment was made whose server died meanwhile.  So it says so: once the dead
server's lease is over, retries get 409 `outcome-unknown`, and nothing is executed.  An operator looks at the
card network's records and says what happened; here the operator is this file.
"""

from collections.abc import Callable
from typing import NamedTuple

from retrysafe import stores
from retrysafe._core.model import Final, Record, Response
from retrysafe.demo.api import as_json, parts_of, receipt
from retrysafe.demo.client import Payment, Workload
from retrysafe.demo.ledger import Charge
from retrysafe.demo.server import Server
from retrysafe.stores.admin import Admin, Note, Query, Standing

OPERATOR = "demo operator"

MIN_REFUSALS = 2
"""`outcome-unknown` responses before the operator acts: the demo shows them, too."""


class Settled(NamedTuple):
    """A payment whose outcome was unknown, and the charge that the operator found, if there was one."""

    payment: Payment
    charge: Charge | None


class Crash:
    """Called again and again while customers pay; kills the server at the right moment."""

    def __init__(self, server: Server, workload: Workload, log: Callable[[str], None]) -> None:
        self._server = server
        self._workload = workload
        self._log = log
        self._by_key = {payment.key: payment for payment in workload.payments}
        self._in_doubt: set[bytes] = set()
        self._store = stores.open(server.store)
        self._admin: Admin | None = None
        self.happened = False
        self.settled: list[Settled] = []

    def step(self, paid: int) -> None:
        if self.happened:
            self._settle()
        elif paid >= len(self._workload.payments) // 3 and self._both_are_held():
            self._kill()

    def unsettled(self) -> int:
        """How many payments are still in doubt."""
        return len(self.admin.list(self._query("abandoned")))

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()
        self._store.close()

    @property
    def admin(self) -> Admin:
        if self._admin is None:
            self._admin = self._store.open_admin()
        return self._admin

    def _query(self, *standings: Standing) -> Query:
        """Records of this shop alone: the store may have others."""
        return Query(standings=frozenset(standings), scope=parts_of(self._server.shop))

    def _both_are_held(self) -> bool:
        """The payment that was not charged yet, and the one that just was."""
        return bool(
            self.admin.list(self._query()._replace(key=self._workload.uncharged.key))
            and self._charge_for(self._workload.charged)
        )

    def _kill(self) -> None:
        self._server.kill()
        # No process writes now: what is in progress is what the killed one left.
        unfinished = self.admin.list(self._query("in_progress", "abandoned"))
        self._in_doubt = {sighting.record.id for sighting in unfinished}
        self._log(f"kill -9: the server is dead, with {len(unfinished)} payments in progress")
        self._server.restart()
        self._log("restarted with the same keys, while the customers go on retrying")
        self.happened = True

    def _settle(self) -> None:
        """Once all leases are over, and customers get `outcome-unknown`."""
        if not self._in_doubt or self._server.counts()["outcome-unknown"] < MIN_REFUSALS:
            return
        sightings = self.admin.list(self._query("abandoned"))
        # Only what the dead server left: to release a request that is running is to run it twice.
        abandoned = [sighting.record for sighting in sightings if sighting.record.id in self._in_doubt]
        if len(abandoned) < len(self._in_doubt):
            return
        for record in abandoned:
            self._settle_one(record)
        taken = sum(one.charge is not None for one in self.settled)
        self._log(
            f"an operator checks each with the card network: {taken} taken, {len(self.settled) - taken} not"
        )

    def _settle_one(self, record: Record) -> None:
        payment = self._by_key[record.key or ""]
        charge = self._charge_for(payment)
        if charge is None:
            note = Note(OPERATOR, "the card network has no record of it")
            done = self.admin.release(record, note)
        else:
            note = Note(OPERATOR, f"the card network took it, receipt {charge.receipt}")
            done = self.admin.resolve(record, Final("completed", _response(charge)), note)
        if done:
            self._in_doubt.discard(record.id)
            self.settled.append(Settled(payment, charge))

    def _charge_for(self, payment: Payment) -> Charge | None:
        found = [charge for charge in self._server.ledger.charges() if charge.order == payment.order]
        return found[0] if found else None


def _response(charge: Charge) -> Response:
    """The response that the server would have sent."""
    # Of the headers only what describes the body: its length belongs to the connection that carries it.
    return Response(201, ((b"content-type", b"application/json"),), as_json(receipt(charge)))
