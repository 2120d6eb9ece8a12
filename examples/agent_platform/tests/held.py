"""The platform with a place at which a request can be held: `python -m examples.agent_platform.tests.held`.

The next handler that stores something waits there, if the file `hold` is in the folder `PLATFORM_HOLD`; it
renames it to `held`, and goes on when that is gone.
"""

import os
import time
from pathlib import Path

from sqlalchemy import event, orm

from examples.agent_platform import app as platform
from examples.agent_platform.__main__ import main
from examples.agent_platform.database import Session
from examples.agent_platform.models import Intended

app = platform.app

_FOLDER = Path(os.environ["PLATFORM_HOLD"])


@event.listens_for(Session, "before_flush")
def _hold(session: orm.Session, _context: object, _instances: object) -> None:
    hold, held = _FOLDER / "hold", _FOLDER / "held"
    if hold.exists() and any(isinstance(row, Intended) for row in session.new):
        hold.rename(held)
        while held.exists():
            time.sleep(0.005)


if __name__ == "__main__":
    main("examples.agent_platform.tests.held:app")
