"""Valkey as the target: a server of its own, which can be killed, and whose connections can be cut.

It flushes every change before it replies: one that is killed has lost nothing that it acknowledged, which is
what the store promises only then.  There are no transactions that a handler could join.
"""

from binascii import unhexlify
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import redis

from retrysafe import stores
from retrysafe.stores.contract import Store
from retrysafe.stores.redis import records
from retrysafe.stores.redis.scripts import Scripts
from retrysafe.testing.conversations.redis import RedisConversation
from retrysafe.testing.proxy import Proxy
from retrysafe.testing.valkey import ValkeyServer, arm
from tools.crash import audit
from tools.crash.links import Statements, ThroughProxy
from tools.crash.modes import Mode
from tools.crash.targets import Link, Target

SETTINGS = {"appendonly": "yes", "appendfsync": "always"}

_DIGESTS = {name: script.sha.decode() for name, script in Scripts().by_name.items()}
_RESERVE, _FINISH = ((name, f"^EVALSHA {_DIGESTS[name]}") for name in ("reserve", "finish"))
STATEMENTS: Statements = dict.fromkeys(("hold", "retry", "inbox"), (_RESERVE, _FINISH))

_READ = """
    local found = {}
    for _, key in ipairs(redis.call('KEYS', '*:r:*')) do
        local record = redis.call('HMGET', key, 's', 'c', 'd', 'r', 'b', 'q')
        record[7] = key
        found[#found + 1] = record
    end
    return found
"""
"""A script, because nothing else runs meanwhile: the records are those of one moment."""


class Valkey(Target):
    ways: ClassVar[Mapping[str, Sequence[str]]] = {"redis": (), "redis async": ()}
    modes: ClassVar[Sequence[Mode]] = ("hold", "retry")
    has_server: ClassVar[bool] = True
    has_link: ClassVar[bool] = True

    def __init__(self, folder: Path, server: ValkeyServer | None = None) -> None:
        """With a server of its own, unless it is given one, which then is left running."""
        super().__init__(folder)
        self._lent = server is not None
        self._server = server or ValkeyServer(**SETTINGS)

    def prepare(self) -> str:
        url = self._server.new_database()
        with closing(stores.open(url)) as store:
            arm(store)
        return url

    def read(self, url: str) -> audit.Snapshot:
        with redis.Redis.from_url(url) as client:
            found: Any = client.eval(_READ, 0)
        return audit.snapshot(_row(fields) for fields in found)

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()

    @contextmanager
    def link(self, url: str) -> Generator[Link]:
        with Proxy(self._server.port, RedisConversation) as proxy:
            yield ThroughProxy(proxy, url, STATEMENTS)

    def close(self) -> None:
        if not self._lent:
            self._server.close()

    @classmethod
    def open(cls, url: str, way: str) -> str | Store:
        return url


def _row(fields: Sequence[Any]) -> Sequence[Any]:
    *stored, name = fields
    record = records.record(unhexlify(name.rpartition(b":r:")[2]), stored)
    response = record.response
    return (
        record.key,
        record.state,
        response.status if response else None,
        response.body if response else None,
        record.door,
        records.due_at(stored[0]) is not None,
    )
