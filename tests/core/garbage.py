"""What a request leaves to the collector."""

import gc


def garbage_of_ours() -> list[object]:
    """What the collector has to free that is ours: other threads of the process may leave some of theirs."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return [one for one in gc.garbage if type(one).__module__.startswith("retrysafe")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
