"""What a request leaves to the collector."""

import gc


def sweep() -> frozenset[int]:
    """Free what earlier tests have left, and give what is still there.

    What falls with it is garbage only then, so once is not enough; and a thread of an earlier test may let go
    of its own even later, so what was there is not what comes after.
    """
    for _ in range(10):
        if not gc.collect():
            break
    return frozenset(id(one) for one in gc.get_objects())


def garbage_of_ours(older: frozenset[int]) -> list[object]:
    """What the collector has to free that is ours and was made since the sweep."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        ours = [one for one in gc.garbage if type(one).__module__.startswith("retrysafe")]
        # No request makes these: the lease keeper of another test's guard counts when its time has come.
        ours = [one for one in ours if type(one).__module__ != "retrysafe.stores.admin"]
        return [one for one in ours if id(one) not in older]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
