"""All planted bugs, in the order in which they are reported."""

from tools.planted import (
    endings,
    flows,
    identity,
    judges,
    keepers,
    lifetimes,
    operators,
    overlooked,
    replays,
    sql,
    stores,
    told,
)
from tools.planted.bug import Planted as Planted

CATALOGUE: tuple[Planted, ...] = (
    *stores.PLANTED,
    *lifetimes.PLANTED,
    *keepers.PLANTED,
    *operators.PLANTED,
    *sql.PLANTED,
    *flows.PLANTED,
    *endings.PLANTED,
    *judges.PLANTED,
    *replays.PLANTED,
    *identity.PLANTED,
    *overlooked.PLANTED,
    *told.PLANTED,
)
