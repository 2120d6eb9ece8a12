"""Errors of MySQL and MariaDB at the end of the caller's transaction, from whichever driver."""

from retrysafe.stores.sql.join import Joint, NotCommitted, connection_lost, refused
from retrysafe.stores.sql.mysql.retry import trouble


def not_committed(error: Exception) -> NotCommitted:
    """What an error there means.  A server that gives its reasons has not committed."""
    said = trouble(error)
    if said.disconnected:
        return connection_lost(error)
    return refused(error, passing=said.passing)


JOINT = Joint("mysql", not_committed)
