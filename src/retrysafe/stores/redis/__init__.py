"""The store on Redis and Valkey: Lua scripts, and what sends them.

- `lua/` has the scripts.  `lua/common.lua` begins each, and says what is stored under which keys.
- `scripts.py` loads them and writes their calls as they are sent; `replies.py` reads what comes back;
  `records.py` makes records of it.
- `operations.py` says which scripts make up an operation; `executor.py` runs those of a batch in one
  pipeline.
- `session.py` is one connection, `connect.py` opens it, `servers.py` says which server has which records.
"""

from typing import TYPE_CHECKING

from retrysafe._core.times import Duration
from retrysafe.stores.options import CLEANUP_INTERVAL

if TYPE_CHECKING:
    from retrysafe.stores.redis.store import RedisStore

__all__ = ["RedisStore", "open_url"]


def open_url(
    url: str, *, deadline: float, cleanup_interval: Duration | None = CLEANUP_INTERVAL
) -> "RedisStore":
    from retrysafe.stores.redis.store import RedisStore

    return RedisStore(url, deadline=deadline, cleanup_interval=cleanup_interval)


def __getattr__(name: str) -> object:
    if name == "RedisStore":
        from retrysafe.stores.redis.store import RedisStore

        return RedisStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
