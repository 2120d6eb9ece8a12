"""The ERP, on each of the databases that it is tried with."""

from collections.abc import Iterator

import pytest

from examples.erp.tests.running import Erp, running
from tests.servers import mariadb, postgres

__all__ = ["mariadb", "postgres"]


@pytest.fixture(scope="session", params=["sqlite", "postgresql", "mariadb"])
def erp(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Erp]:
    """One for all tests, because to start it takes longer than most of them."""
    folder = tmp_path_factory.mktemp("erp")
    url = f"sqlite:///{folder}/erp.db"
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres")
        url = server.new_database().replace("postgresql:", "postgresql+psycopg:")
    elif request.param == "mariadb":
        server = request.getfixturevalue("mariadb")
        url = server.new_database().replace("mysql:", "mysql+pymysql:")
    with running(url, folder) as erp:
        yield erp
