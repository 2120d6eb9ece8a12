"""All planted bugs, in the order in which they are reported."""

from tools.planted import (
    callbacks,
    claims,
    decisions,
    expiry,
    identity,
    leases,
    mysql,
    operations,
    operators,
    outcomes,
    postgresql,
    queues,
    redis,
    replays,
    responses,
    sql,
    stores,
    unnoticed,
)
from tools.planted.bug import LeftToTests
from tools.planted.bug import Planted as Planted

CATALOGUE: tuple[Planted, ...] = (
    *stores.PLANTED,
    *queues.PLANTED,
    *expiry.PLANTED,
    *leases.PLANTED,
    *operators.PLANTED,
    *sql.PLANTED,
    *claims.PLANTED,
    *outcomes.PLANTED,
    *decisions.PLANTED,
    *replays.PLANTED,
    *identity.PLANTED,
    *operations.PLANTED,
    *callbacks.PLANTED,
    *unnoticed.PLANTED,
    *responses.PLANTED,
)
"""Those that the simulator catches."""

TESTED: tuple[LeftToTests, ...] = (
    *queues.TESTED,
    *callbacks.TESTED,
    *postgresql.TESTED,
    *mysql.TESTED,
    *redis.TESTED,
)
"""Those that a test of the library catches."""
