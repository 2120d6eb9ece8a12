"""What a world is like before anything happens in it: the policy, and how its handlers behave."""

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

from retrysafe._core.model import Mode
from retrysafe.policy import Abandoned, Failed, InFlight, StoreDown
from retrysafe.stores.contract import Store
from retrysafe.testing.simulate.model import ModelStore

Handler = Literal["succeeds", "fails", "recovers", "raises", "declines", "derives", "streams", "breaks off"]
"""What handlers do.

succeeds    201
fails       500
recovers    500 at first, and then 201
raises      an exception at first, and then 201
declines    raises `NotDone` at first, having done nothing, and then 201
derives     raises `NotDone` after it has passed a derived key on: something may have happened
streams     a response too large to store, which is sent as it is produced
breaks off  the same, and at first it ends in the middle with an exception
"""

Arrives = Literal["request", "operation", "both", "nested"]
"""Through which door calls come.

request    the request door
operation  the operation door
both       both of them, with the same keys: these are different records
nested     both of them, in transactions, and a part of each is an operation with a key of its own, which
           several of them share; `handler` is how that part behaves, and what it raises is swallowed
"""

Clock = Callable[[], float]

LEASE = 30.0
RETENTION = 3600.0
HOLD = 7200.0
"""For how long an abandoned attempt is held; longer than the retention, as by default."""


class Setting(NamedTuple):
    name: str = "hold"
    mode: Mode = "lease"
    """In "tx" an execution has its effect when, and only if, its transaction is committed."""
    abandoned: Abandoned = "hold"
    failed: Failed = "replay"
    handler: Handler = "succeeds"
    in_flight: InFlight = "reject"
    store_down: StoreDown = "refuse"
    reauthorise: bool = False
    """Whether the application is asked before a stored response is sent; principals may be revoked."""
    store: Callable[[Clock], Store] = ModelStore
    """Makes an empty store that uses this clock."""
    door: Arrives = "request"

    def check(self) -> None:
        """Raise `ValueError` for what the policy does not check."""
        if not self.name:
            raise ValueError("a Setting has an empty name: give it one, because results are listed by name")
        choices: dict[str, tuple[object, ...]] = {
            "mode": get_args(Mode), "handler": get_args(Handler), "reauthorise": (True, False),
            "door": get_args(Arrives),
        }  # fmt: skip
        for field, allowed in choices.items():
            value = getattr(self, field)
            if value not in allowed:
                listed = ", ".join(map(repr, allowed))
                raise ValueError(f"Setting({field}={value!r}) is not valid: expected one of {listed}")
        if not callable(self.store):
            raise ValueError(
                f"Setting(store={self.store!r}) cannot be called: expected a function that is given a "
                "clock and returns an empty store that uses it, such as a store's class"
            )
        if self.mode == "tx":
            self._check_transactional()
        elif self.door == "nested":
            raise ValueError(
                f'Setting(mode={self.mode!r}, door="nested"): an operation is a part of another call only in '
                'its transaction, so the mode must be "tx"'
            )
        if self.door != "request" and (self.reauthorise or self.handler in ("streams", "breaks off")):
            raise ValueError(
                f"Setting(door={self.door!r}, handler={self.handler!r}, reauthorise={self.reauthorise}): the "
                "value of an operation does not stream, and no one is asked before it is given again"
            )

    def _check_transactional(self) -> None:
        if (self.abandoned, self.failed) != ("retry", "retry"):
            raise ValueError(
                f'Setting(mode="tx", abandoned={self.abandoned!r}, failed={self.failed!r}): what failed or '
                'died in a transaction was rolled back, so both must be "retry"'
            )
        if self.handler in ("streams", "breaks off"):
            raise ValueError(
                f'Setting(mode="tx", handler={self.handler!r}): nothing leaves before it is committed, so '
                "handlers of transactions do not stream"
            )


TX = Setting("tx", "tx", "retry", "retry")
"""Effects in the store's own database: what failed or died was rolled back, so there is nothing to choose."""

HOLDING = (
    Setting("hold"),
    Setting("hold, failures are replayed", handler="fails"),
    Setting("hold, failures are retried", failed="retry", handler="recovers"),
    Setting("hold, failures are conflicts", failed="conflict", handler="recovers"),
    Setting("hold, at first it raises", handler="raises"),
    Setting("hold, nothing was done at first", handler="declines"),
    Setting("hold, something may have been done", handler="derives"),
    Setting("hold, too large to keep", handler="streams"),
    Setting("hold, broken off", handler="breaks off"),
    Setting("hold, others wait", in_flight="wait"),
    Setting("hold, asked again who may see it", reauthorise=True),
    Setting("hold, runs without the store", store_down="run"),
)
RETRYING = (
    Setting("retry", abandoned="retry"),
    Setting("retry, failures are replayed", abandoned="retry", handler="fails"),
    Setting("retry, failures are retried", abandoned="retry", failed="retry", handler="recovers"),
    Setting("retry, failures are conflicts", abandoned="retry", failed="conflict", handler="recovers"),
    Setting("retry, nothing was done at first", abandoned="retry", handler="declines"),
    Setting("retry, too large to keep", abandoned="retry", handler="streams"),
    Setting("retry, broken off", abandoned="retry", handler="breaks off"),
    Setting("retry, others wait", abandoned="retry", in_flight="wait"),
)
TRANSACTIONAL = (
    TX,
    TX._replace(name="tx, at first it fails", handler="recovers"),
    TX._replace(name="tx, nothing was done at first", handler="declines"),
    TX._replace(name="tx, something may have been done", handler="derives"),
    TX._replace(name="tx, others wait", in_flight="wait"),
)
SETTINGS = (*HOLDING, *RETRYING, *TRANSACTIONAL)
"""Those of random walks, in turn, and of searches, one after the other."""

NESTED = TX._replace(name="nested", door="nested")
OPERATIONS = (
    Setting("operations, hold", door="operation"),
    Setting("operations, hold, at first it raises", handler="raises", door="operation"),
    Setting("operations, hold, something may have been done", handler="derives", door="operation"),
    Setting("operations, retry", abandoned="retry", failed="retry", handler="recovers", door="operation"),
    Setting("operations, retry, others wait", abandoned="retry", in_flight="wait", door="operation"),
    TX._replace(name="operations, tx", door="operation"),
    Setting("beside requests, hold", door="both"),
    TX._replace(name="beside requests, tx, at first it fails", handler="recovers", door="both"),
    NESTED,
    NESTED._replace(name="nested, at first it raises", handler="raises"),
    NESTED._replace(name="nested, nothing was done at first", handler="declines"),
    NESTED._replace(name="nested, others wait", in_flight="wait"),
)
"""The same where calls are operations, or some of them.  Apart from the others, whose seeds stay as they
are."""
