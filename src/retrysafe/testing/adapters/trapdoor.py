"""The reference application with a trapdoor: it kills itself before or after a step of the protocol.

    python -m retrysafe.testing.adapters.trapdoor FILE asgi --store URL --port N …

As long as FILE is not there, nothing happens.  If it says `before Commit`, the next process that comes to a
`Commit` removes it, and is gone before it performs it; `after Commit` likewise, before anyone learns of it.
A file and not a header, so that it works under every framework.
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from retrysafe.testing import traps
from retrysafe.testing.reference.__main__ import main


def install(file: Path) -> None:
    """Have the file looked for at every step of this process and of its children."""

    @contextmanager
    def step(name: str) -> Generator[None]:
        try:
            wanted = file.read_text()
            if wanted.endswith(f" {name}"):
                file.unlink()
                traps.set_trap(f"kill {wanted}")
        except FileNotFoundError:
            pass  # no trap is set, or another process has fallen into it
        with traps.place(name):
            yield

    traps.around_steps(step)


if __name__ == "__main__":
    install(Path(sys.argv.pop(1)))
    main()
