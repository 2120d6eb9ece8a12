"""A purge as an operator runs it, in a process of its own:  python -m benchmarks.purger URL CORE

Writes how many records it has removed so far: a line when it is ready, and one for every batch.
"""

import sys

from benchmarks import cores
from retrysafe import stores

BATCH = 1_000


def main(url: str, core: str) -> None:
    cores.pin(int(core) if core else None)
    store = stores.open(url)
    admin = store.open_admin()
    admin.expired()  # opens it
    removed, batch = 0, BATCH
    print(removed, flush=True)
    while batch == BATCH:
        batch = admin.purge(BATCH).records
        removed += batch
        print(removed, flush=True)
    admin.close()
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
