"""Places in a program at which the tests of examples hold it, to do something to it there.

The program calls `pass_through("after o-1")`.  If a test has closed that gate, the process waits there, and
the test learns its id: it may kill it, or open the gate again.  All of it is files in a folder, so that it
works for any number of processes, whatever starts them.
"""

import os
import time
from pathlib import Path


class Gates:
    """Those of one folder.  A gate holds the first process that comes to it; others pass."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    # --- in the program

    def pass_through(self, place: str) -> None:
        try:
            (self._folder / f"{place}.closed").unlink()
        except FileNotFoundError:
            return  # it is open, or holds another process
        held = self._folder / f"{place}.{os.getpid()}.held"
        held.touch()
        while held.exists():
            time.sleep(0.005)

    # --- in the test

    def close(self, place: str) -> None:
        (self._folder / f"{place}.closed").touch()

    def held(self, place: str) -> int | None:
        """The id of the process that waits there, if one does."""
        return next((int(file.name.split(".")[-2]) for file in self._folder.glob(f"{place}.*.held")), None)

    def open(self, place: str) -> None:
        """Let the process go on that waits there."""
        for held in self._folder.glob(f"{place}.*.held"):
            held.unlink()
