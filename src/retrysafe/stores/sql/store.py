"""A store in an SQL database: `stores/queued.py`, with the operations that SQL stores have in common."""

from retrysafe._core.model import Purged
from retrysafe.stores.queued import AsyncQueuedStore, Database, QueuedStore
from retrysafe.stores.sql import cleanup, operations


class SQLStore(QueuedStore):
    def __init__(self, database: Database) -> None:
        super().__init__(database, operations)
        self.aio = AsyncSQLStore(database)

    def purge(self, limit: int = 500) -> Purged:
        queue = self._database.queue
        return cleanup.purge(lambda operation: queue.perform(operation, b"purge"), limit)


class AsyncSQLStore(AsyncQueuedStore):
    """The same for coroutines."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, operations)
