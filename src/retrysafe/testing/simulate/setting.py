"""What a world is like before anything happens in it: the policy, and how its handlers behave."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from retrysafe.model import Mode
from retrysafe.policy import Abandoned, Failed, InFlight, StoreDown
from retrysafe.stores.contract import Store
from retrysafe.stores.memory import MemoryStore

Handler = Literal["succeeds", "fails", "recovers", "declines", "streams"]
"""Always 201; always 500; first 500 and then 201; first `NotDone` and then 201; an answer too large to keep,
which leaves as it comes."""

Clock = Callable[[], float]


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
    """Whether the application is asked before a stored answer is handed out; principals may be revoked."""
    store: Callable[[Clock], Store] = MemoryStore
    """Makes an empty store that goes by this clock."""
