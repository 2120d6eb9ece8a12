"""MySQL and MariaDB by any driver: see `sql/backend.py`.

Statements have their values in them: in a session of our own, whose mode and character set are known, they
mean what they say, and a driver that takes several statements as one text sends a batch in one round trip.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from retrysafe.errors import StoreUnavailable
from retrysafe.stores.queue import Arguments, Batch, Outcome, Row
from retrysafe.stores.retry import Trouble
from retrysafe.stores.sql.backend import Backend, Execute
from retrysafe.stores.sql.mysql import schema
from retrysafe.stores.sql.mysql.admin import MySQLAdmin, explained
from retrysafe.stores.sql.mysql.batch import Conversation, converse, manner, within
from retrysafe.stores.sql.mysql.join import JOINT
from retrysafe.stores.sql.mysql.retry import trouble
from retrysafe.stores.sql.mysql.texts import Step, Text, with_literals

T = TypeVar("T")

_SHORTEST = 1
"""Seconds to wait for a lock, with which a session begins."""

_CHARACTER_SET = "utf8mb4"


class Runner:
    """A batch is one transaction where more than one of its statements writes."""

    def run(self, execute: Execute, calls: Batch, patience: float) -> Sequence[Outcome]:
        seconds = max(int(patience), _SHORTEST)
        conversation = converse(calls, manner(patience, alone=calls.alone))
        try:
            if seconds == _SHORTEST:
                return _converse(execute, conversation)
            return _converse(execute, _patiently(conversation, seconds))
        except Trouble as trouble:
            if len(calls) > 1 or trouble.disconnected:
                raise
            return [trouble]


def _patiently(conversation: Conversation[list[Outcome]], seconds: int) -> Conversation[list[Outcome]]:
    """The same, in a session that waits for locks for so long."""
    yield [_wait_for_locks(seconds)]
    try:
        outcomes = yield from conversation
    except Trouble as trouble:
        if not trouble.disconnected:
            yield [_wait_for_locks(_SHORTEST)]
        raise
    yield [_wait_for_locks(_SHORTEST)]
    return outcomes


def _wait_for_locks(seconds: int) -> Step:
    return Step(Text(f"SET SESSION innodb_lock_wait_timeout = {seconds}"), {})


def _converse(execute: Execute, conversation: Conversation[T]) -> T:
    try:
        steps = next(conversation)
        while True:
            try:
                found = execute.together(with_literals(steps, execute.largest))
            except Trouble as trouble:
                steps = conversation.throw(trouble)
            else:
                steps = conversation.send(found)
    except StopIteration as end:
        result: T = end.value
        return result


def _begin(execute: Execute) -> None:
    # A driver encodes our statements in the character set that it was told, and does not hear of another one.
    [[(found,)]] = execute.together(["SELECT @@character_set_client"])
    if found != _CHARACTER_SET:
        raise StoreUnavailable(
            f"the engine's connections have the character set {found}, which cannot hold every text: add "
            f"?charset={_CHARACTER_SET} to its address"
        )
    execute.together(schema.SESSION)


def _check(execute: Execute, *, prepared: bool, migrated_by: str | None = None) -> None:
    def ask(name: str, arguments: Arguments | None = None, /) -> Sequence[Row]:
        return _query(execute, name, arguments or {})

    def command(sql: str) -> None:
        execute.together([sql])

    execute.largest = schema.inspect(ask).largest
    if not prepared:
        schema.prepare(ask, command, migrated_by)


def _query(execute: Execute, name: str, arguments: Mapping[str, object]) -> Sequence[Row]:
    return _converse(execute, within(name, arguments))


BACKEND = Backend(
    title="MySQL",
    joint=JOINT,
    runner=Runner,
    begin=_begin,
    check=_check,
    query=_query,
    trouble=trouble,
    explained=explained,
    admin=MySQLAdmin,
)
