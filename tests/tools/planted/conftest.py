"""The folder in which the processes of a run share what they have hunted."""

import os

import pytest

from tests.tools.planted.hunted import Hunts


@pytest.fixture(scope="session")
def hunts(tmp_path_factory: pytest.TempPathFactory) -> Hunts:
    base = tmp_path_factory.getbasetemp()
    # Each worker of xdist has a folder of its own, below the one of the run.
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    return Hunts(shared / "hunted")
