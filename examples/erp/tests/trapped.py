"""The application, in workers that kill themselves where a test wants it: at a step of the protocol."""

import os
from pathlib import Path

from examples.erp.app import create_app
from retrysafe.testing.adapters.trapdoor import install

__all__ = ["create_app"]

install(Path(os.environ["ERP_TRAP"]))
