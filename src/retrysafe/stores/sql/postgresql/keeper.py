"""The lease keeper's own connection: renewals wait neither for a free connection nor for an event loop."""

from collections.abc import Mapping, Sequence
from functools import partial

from retrysafe._core.model import Claim
from retrysafe.stores.sql import operations
from retrysafe.stores.sql.postgresql.cleanup import Cleanup, Runner


class PostgresRenewer:
    """Every call is one statement, however many leases there are."""

    def __init__(self, executor: Runner) -> None:
        self._executor = executor
        self._chores = Cleanup(executor)

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        return self._executor.run(partial(operations.renew_all, claims)) if claims else []

    def release(self, claims: Sequence[Claim]) -> None:
        if claims:
            self._executor.run(partial(operations.release_all, claims))

    def count(self, verdicts: Mapping[str, int]) -> None:
        if verdicts:
            self._executor.run(partial(operations.add_verdicts, verdicts))
        self._chores.tidy()

    def close(self) -> None:
        self._executor.close()
