"""What a request leaves to the collector."""

import gc


def sweep() -> None:
    """Free what earlier tests have left.  What falls with it is garbage only then, so once is not enough."""
    for _ in range(10):
        if not gc.collect():
            return


def garbage_of_ours() -> list[object]:
    """What the collector has to free that is ours: other threads of the process may leave some of theirs."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return [one for one in gc.garbage if type(one).__module__.startswith("retrysafe")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
