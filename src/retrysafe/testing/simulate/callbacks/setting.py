"""What a world of callbacks is like."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from retrysafe import Guard, scopes
from retrysafe._core.model import Mode, Request
from retrysafe._core.steps import Delivery
from retrysafe.callbacks import Payload, Receipts, Retries, receipts
from retrysafe.policy import Effects
from retrysafe.stores.contract import Store
from retrysafe.testing.simulate.model import ModelStore
from retrysafe.testing.simulate.setting import LEASE, Clock

Kept = Literal["inline", "payload", "inbox"]
"""inline   the delivery handles its event, and nothing of the payload is stored
payload  the same, and a worker handles what failed or was interrupted
inbox    a worker handles everything
"""

Behaviour = Literal["succeeds", "raises", "declines", "refuses", "kills"]
"""succeeds  handles the event
raises    an exception at first, and then handles it
declines  raises `NotDone` at first, having done nothing, and then handles it
refuses   responds 429 at first, and then handles it; only deliveries, since a worker has no response
kills     ends its process, every time
"""

RETRIES = Retries(attempts=5, first=5.0, longest=20.0)

RETENTION = 30 * 86_400.0
HORIZON = 75 * 3600.0
"""How long a sender of Standard Webhooks repeats a delivery."""

REQUEST = Request("POST", "/callbacks", b"", ())


class CallbackSetting(NamedTuple):
    name: str
    effects: Effects = "repeatable"
    kept: Kept = "inline"
    handler: Behaviour = "succeeds"
    patient: bool = True
    """Whether senders repeat until they are acknowledged; others may never come back."""
    store: Callable[[Clock], Store] = ModelStore
    in_flight: str = "reject"

    @property
    def mode(self) -> Mode:
        return "tx" if self.effects == "database" else "lease"


_INLINE = (
    CallbackSetting("callbacks, lease"),
    CallbackSetting("callbacks, lease, at first it raises", handler="raises"),
    CallbackSetting("callbacks, lease, nothing was done at first", handler="declines"),
    CallbackSetting("callbacks, lease, refused at first", handler="refuses"),
    CallbackSetting("callbacks, hold", effects="outside"),
    CallbackSetting("callbacks, tx", effects="database"),
    CallbackSetting("callbacks, tx, at first it raises", effects="database", handler="raises"),
)
_MODES: tuple[tuple[str, Effects], ...] = (("lease", "repeatable"), ("tx", "database"), ("hold", "outside"))
_HANDLERS: tuple[tuple[str, Behaviour, bool], ...] = (
    ("", "succeeds", True),
    (", senders give up", "succeeds", False),
    (", at first it raises", "raises", False),
    (", nothing was done at first", "declines", False),
    (", it kills its process", "kills", False),
)
_STORES: tuple[Kept, ...] = ("payload", "inbox")
_STORED = tuple(
    CallbackSetting(f"{kept}, {mode}{more}", effects, kept, handler, patient)
    for kept in _STORES
    for mode, effects in _MODES
    for more, handler, patient in _HANDLERS
)
CALLBACKS: tuple[CallbackSetting, ...] = (*_INLINE, *_STORED)
"""Those of random walks, in turn."""


class _Joint(ModelStore):
    """Says that handlers can join its transactions, which here are those of the world."""

    joint = True


class CallbackStage:
    """One setting, compiled, for many worlds."""

    def __init__(self, setting: CallbackSetting) -> None:
        self.setting = setting
        own: dict[str, Any] = {} if setting.kept == "inline" else {"retries": RETRIES}
        guard = Guard(_Joint(lambda: 0.0), scope=scopes.service("simulated"))
        self.receipts: Receipts[Any] = receipts(
            guard,
            source="jobs",
            effects=setting.effects,
            lease=LEASE,
            retention=RETENTION,
            store_payload=setting.kept == "payload",
            inbox=setting.kept == "inbox",
            **own,
        )
        self.receipts.handler(_handle)
        self._deliveries: dict[tuple[int, int], Delivery] = {}

    @property
    def holds(self) -> bool:
        """Whether what was begun is not begun again by itself."""
        return self.setting.effects == "outside"

    def delivery(self, event: int, body: int) -> Delivery:
        made = self._deliveries.get((event, body))
        if made is None:
            found = self.receipts.delivery(
                {"callback_id": f"e-{event}", "run_id": "r", "amount": body},
                Payload(b'{"callback_id": "e-%d", "run_id": "r", "amount": %d}' % (event, body)),
                "the first",
            )
            assert isinstance(found, Delivery)
            made = self._deliveries[event, body] = found
        return made


def _handle(event: dict[str, object]) -> None:
    """Stands for the handler: the world runs it."""
