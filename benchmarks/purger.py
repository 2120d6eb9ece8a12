"""A purge as an operator runs it, in a process of its own:  python -m benchmarks.purger URL PER_SECOND CORE

Writes how many records it has removed so far: a line when it is ready, and one for every batch.
"""

import sys
import time

from benchmarks import cores
from retrysafe import stores

BATCH = 200
"""As many as a store removes in one commit: more at a time would be a burst and then a rest."""


def main(url: str, per_second: str, core: str) -> None:
    cores.pin(int(core) if core else None)
    store = stores.open(url, deadline=30)
    admin = store.open_admin()
    admin.expired()  # opens it
    removed, batch, due = 0, BATCH, 0.0
    print(removed, flush=True)
    while batch == BATCH:
        # What was missed, while it was halted or too slow, is not made up for: that would be a higher pace.
        due = max(due, time.monotonic()) + BATCH / float(per_second)
        batch = admin.purge(BATCH).records
        removed += batch
        print(removed, flush=True)
        time.sleep(max(0.0, due - time.monotonic()))
    admin.close()
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
