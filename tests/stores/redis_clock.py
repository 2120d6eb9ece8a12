"""A store on Redis whose clock stands still until it is put forward, and its records from behind its back."""

import struct
import time
from itertools import count
from typing import Any

import redis

from retrysafe._core.times import Duration
from retrysafe.stores.options import CLEANUP_INTERVAL
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


Client = redis.Redis | redis.RedisCluster

_prefixes = count()


class Keys:
    """The keys of a test, under a prefix that no other test has."""

    def __init__(self, url: str, client: Client) -> None:
        prefix = f"test-{next(_prefixes)}"
        self.url = f"{url}?prefix={prefix}"
        self.layout = Layout(prefix)
        self.client: Any = client  # of which redis-py says different things by class
        self._now = time.time()
        self._tell()

    def store(self, cleanup_interval: Duration | None = CLEANUP_INTERVAL) -> RedisStore:
        return RedisStore(
            self.url, deadline=PATIENT, cleanup_interval=cleanup_interval, create=True, clock=CLOCK
        )

    def elapse(self, seconds: float) -> None:
        self._now += seconds
        self._tell()

    def lose_lease(self, id: bytes) -> None:
        key = self.record(id)
        head = self.client.hget(key, "s")
        self.client.hset(key, "s", head[:10] + struct.pack("<d", -1.0) + head[18:])

    def expire(self) -> None:
        """All records, at the beginning of time."""
        for bucket in self.layout.buckets:
            for name in self.client.zrange(bucket.ids, 0, -1):
                head = self.client.hget(bucket.record + name, "s")
                self.client.hset(bucket.record + name, "s", head[:42] + struct.pack("<d", 0.0) + head[50:])
                self.client.zadd(bucket.ids, {name: 0.0})

    def records(self) -> int:
        return sum(self.client.zcard(bucket.ids) for bucket in self.layout.buckets)

    def set_next_round(self, value: str) -> None:
        """The time of the next cleanup."""
        self.client.set(self.layout.cleanup, value)

    @property
    def now(self) -> float:
        return self._now

    def record(self, id: bytes) -> bytes:
        """The key of its hash."""
        return self.layout.of(id).record_of(id)

    def _tell(self) -> None:
        """To all buckets."""
        with self.client.pipeline(transaction=False) as pipeline:
            for bucket in self.layout.all:
                pipeline.set(bucket.armed.removesuffix(b"armed") + b"clock", repr(self._now))
            pipeline.execute()
