"""The Galera cluster whose nodes tests kill, start again and cut off."""

import pymysql
import pytest

from retrysafe.testing import galera
from retrysafe.testing.galera import GaleraCluster
from tests.servers import missing


@pytest.mark.full
def test_nodes_go_and_come() -> None:
    """What one node writes, all have; two of three go on, one alone does not; one that returns catches up."""
    if not galera.is_available():
        missing("Galera is not installed: run `make services`")
    with GaleraCluster() as cluster:
        database = cluster.new_database()
        one, two, three = cluster.nodes
        one.execute(f"CREATE TABLE {database}.name (value INT PRIMARY KEY)")
        one.execute(f"INSERT INTO {database}.name VALUES (1)")
        one.kill()
        cluster.wait_until_whole()
        two.execute(f"INSERT INTO {database}.name VALUES (2)")
        one.start()
        cluster.wait_until_whole()
        names = f"SELECT value FROM {database}.name ORDER BY value"
        assert one.execute(names) == ((1,), (2,))
        cluster.isolate(three)
        with pytest.raises(pymysql.OperationalError, match="not yet prepared"):
            three.execute(names)
        two.execute(f"INSERT INTO {database}.name VALUES (3)")
        cluster.rejoin(three)
        assert three.execute(f"SET STATEMENT wsrep_sync_wait=1 FOR {names}") == ((1,), (2,), (3,))
