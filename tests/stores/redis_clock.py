"""A store on Redis whose clock stands still until it is put forward, and its records from behind its back."""

import struct
import time
from urllib.parse import urlsplit

import redis

from retrysafe.stores.redis import RedisStore
from retrysafe.stores.redis.scripts import Layout

CLOCK = """
local function clock()
    return tonumber(redis.call('GET', (string.gsub(KEYS[1], 'armed$', 'clock'))))
end

"""
"""In the place of `clock.lua`: each bucket has a time of its own, and all have the same."""

PATIENT = 20.0
"""Seconds.  A busy machine is no fault of the store."""


class Keys:
    """The database of a test."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._layout = Layout("retrysafe")
        self._client = redis.Redis.from_url(urlsplit(url)._replace(query="").geturl())
        self._now = time.time()
        self._tell()

    def store(self) -> RedisStore:
        return RedisStore(self.url, deadline=PATIENT, create=True, clock=CLOCK)

    def elapse(self, seconds: float) -> None:
        self._now += seconds
        self._tell()

    def lose_lease(self, id: bytes) -> None:
        key = self._layout.of(id).record + id
        head = self._client.hget(key, "s")
        assert isinstance(head, bytes)
        self._client.hset(key, "s", head[:10] + struct.pack("<d", -1.0) + head[18:])

    def _tell(self) -> None:
        """For all buckets."""
        names = [bucket.armed.removesuffix(b"armed") + b"clock" for bucket in self._layout.all]
        self._client.mset(dict.fromkeys(names, repr(self._now)))

    def close(self) -> None:
        self._client.close()
