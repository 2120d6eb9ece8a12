"""Commands to copy: what an operator can do to a record, spelled out."""

import os
import shlex

from retrysafe.cli.describing import short_id
from retrysafe.cli.options import ENVIRONMENT
from retrysafe.stores.admin import Sighting


def possible_commands(sighting: Sighting, store: str | None) -> list[str]:
    """What can be done to a record now; nothing, where it takes care of itself."""
    if sighting.standing != "abandoned":
        return []
    id = short_id(sighting.record.id)
    where = _where(store)
    return [
        f'retrysafe resolve {id} --done --reason "…"{where}',
        f'retrysafe resolve {id} --failed --reason "…"{where}',
        f'retrysafe release {id} --reason "…"{where}',
    ]


def _where(store: str | None) -> str:
    # An address may hold a password, and what is on a screen is soon in a chat.
    secret = store is not None and ("@" in store or "password" in store.lower())
    if store is None or secret or os.environ.get(ENVIRONMENT) == store:
        return ""
    return f" --store {shlex.quote(store)}"
