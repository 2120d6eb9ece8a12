"""The store in MySQL or MariaDB: an address; the rest is `sql/store.py`."""

from retrysafe._core.times import Duration
from retrysafe.stores.options import CLEANUP_INTERVAL, check_deadline
from retrysafe.stores.sql.cleanup import Cleanup
from retrysafe.stores.sql.keeper import SQLRenewer
from retrysafe.stores.sql.mysql.admin import MySQLAdmin
from retrysafe.stores.sql.mysql.connect import Address
from retrysafe.stores.sql.mysql.database import Database
from retrysafe.stores.sql.mysql.join import JOINT
from retrysafe.stores.sql.store import SQLStore


class MySQLStore(SQLStore):
    """Records in a database of MySQL or MariaDB, given its address.

    No operation waits longer than `deadline` seconds.  A process has one connection for its threads and one
    for each event loop, and up to two more of each while calls are run alone; and one for the lease keeper.
    It creates its tables, unless `migrated_by` names a command that does.
    """

    joint = JOINT

    def __init__(
        self,
        url: str,
        *,
        deadline: float = 2.0,
        cleanup_interval: Duration | None = CLEANUP_INTERVAL,
        migrated_by: str | None = None,
    ) -> None:
        check_deadline(deadline)
        self._deadline = deadline
        self._cleanup = Cleanup(cleanup_interval)
        self._mysql = Database(Address.parse(url, deadline), deadline, migrated_by)
        super().__init__(self._mysql)

    def open_keeper(self) -> SQLRenewer:
        return SQLRenewer(self._mysql.executor(), self._deadline, self._cleanup)

    def open_admin(self) -> MySQLAdmin:
        return MySQLAdmin(self._mysql.operator, self._deadline)

    def close(self) -> None:
        self._mysql.close()
