"""The Redis store: an address; the rest is `stores/queued.py`."""

from contextlib import closing

from retrysafe._core.model import Purged
from retrysafe._core.times import Duration
from retrysafe.errors import ConfigurationError
from retrysafe.stores.options import CLEANUP_INTERVAL, check_deadline
from retrysafe.stores.queue import perform_alone
from retrysafe.stores.queued import QueuedStore
from retrysafe.stores.redis.address import Address
from retrysafe.stores.redis.admin import RedisAdmin
from retrysafe.stores.redis.database import Database
from retrysafe.stores.redis.keeper import RedisRenewer
from retrysafe.stores.redis.operations import Operations
from retrysafe.stores.redis.scripts import Layout, Scripts
from retrysafe.stores.sql.cleanup import Cleanup


class RedisStore(QueuedStore):
    """Records on a server of Redis or Valkey, or on a cluster of them.

    `url` is an address as `stores.open` takes it.  No operation waits longer than `deadline` seconds.  A
    process has one connection per server for its threads and one for each event loop, and up to two more of
    each while calls are run alone; and one for the lease keeper.

    It works only where it has been *armed*: `retrysafe arm` sets a sentinel, and without it every
    operation raises `StoreReset`, because records may have been lost.  With `create` (or `?create=1`) it arms
    a store in which no sentinel is, once per process: for development and tests.
    """

    def __init__(
        self,
        url: str,
        *,
        deadline: float = 2.0,
        cleanup_interval: Duration | None = CLEANUP_INTERVAL,
        create: bool = False,
        clock: str | None = None,
    ) -> None:
        """`clock` is Lua for tests: a function of this name, which gives the time instead of the server's."""
        check_deadline(deadline)
        address = Address.parse(url)
        if address.wait_timeout is not None and address.wait_timeout >= deadline:
            raise ConfigurationError(
                f"wait_timeout is {address.wait_timeout:g} s, and the store's deadline {deadline:g} s: write "
                "a shorter one, or leave it out"
            )
        if create:
            address = address._replace(creates=True)
        scripts = Scripts(confirms=address.wait > 0, clock=clock)
        self._own = Operations(Layout(address.prefix), scripts)
        self._redis = Database(address, self._own.layout, scripts, deadline)
        self._deadline = deadline
        self._cleanup = Cleanup(cleanup_interval, operations=self._own)
        super().__init__(self._redis, self._own)

    def __repr__(self) -> str:
        return f"<RedisStore {', '.join(map(str, self._redis.address.nodes))}>"

    def purge(self, limit: int = 500) -> Purged:
        # On a connection of its own: no claim waits for it.
        with closing(self._redis.executor()) as executor:
            return perform_alone(executor, self._own.purge(limit), self._deadline)

    def open_keeper(self) -> RedisRenewer:
        return RedisRenewer(self._redis.executor(), self._own, self._deadline, self._cleanup)

    def open_admin(self) -> RedisAdmin:
        return RedisAdmin(self._redis, self._own, self._deadline)

    def close(self) -> None:
        self._redis.close()
