"""Plans that the server has made for prepared statements: they do not get old.

One that was made while the table was empty reads the whole table, and is used until the server analyses it
again, which may be a minute later: 10 ms for each request after 40,000 records.  So they are made anew every
few seconds, for the table as it is then.
"""

from time import monotonic

DISCARD = "DISCARD PLANS"
"""Of this session; the statements stay prepared."""

_LAST = 10.0
"""Seconds.  In that time a table does not grow so large that reading all of it would be noticed; and to make
the plans costs less than a millisecond."""


class CachedPlans:
    """When those of one connection were made."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = monotonic() + _LAST

    def are_old(self) -> bool:
        """Whether they are to be discarded now; counts from now on, if so."""
        now = monotonic()
        if now < self._until:
            return False
        self._until = now + _LAST
        return True
