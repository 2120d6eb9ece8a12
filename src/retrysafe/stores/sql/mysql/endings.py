"""Which statements end a transaction on MySQL and MariaDB: many more than say so.

A statement that defines something commits what came before it.  Nothing undoes that afterwards, so in a
guarded call such a statement is refused before it is sent.

What hides one, such as `CALL` of a procedure, gets past this.  So the transaction of a guarded call has a
mark: a savepoint that is gone as soon as the transaction was ended, by whatever, see `join.py`.
"""

import re

_SKIPPED = r"(?:[\s;(]|(?:--(?=\s|$)|\#)[^\n]*(?:\n|$)|/\*(?!M?!).*?\*/|/\*M?!\d*|\*/)*"
"""Before the first word: comments, but not those whose text is executed."""

_WORDS = re.compile(
    _SKIPPED + r"(?:"
    # Transactions, and what begins another one.
    r"(?:commit|begin|xa|start\s+transaction|rollback(?!\s+(?:work\s+)?to\b))\b"
    r"|set\s+(?:[^;]*,\s*)?(?:session\s+|local\s+|global\s+|@@(?:session\.|local\.|global\.)?)?`?autocommit\b"
    r"|set\s+(?:password|default\s+role)\b"
    r"|(?:un)?lock\s+(?:table|tables|instance)\b|flush\b"
    # Tables that vanish with their session are the exception among what is defined.
    r"|create\s+(?!(?:or\s+replace\s+)?temporary\b)\w+|drop\s+(?!temporary\b|prepare\b)\w+"
    r"|(?:alter|rename|truncate|grant|revoke|install|uninstall|import)\b"
    r"|(?:analyze|check|optimize|repair)\s+(?:no_write_to_binlog\s+|local\s+)?(?:table|tables|view)\b"
    r"|cache\s+index\b|load\s+index\b|reset\b|backup\b|clone\b|shutdown\b|restart\b"
    r"|(?:change|start|stop)\s+(?:master|replication|slave|slaves|all\s+slaves|replica|group_replication)\b"
    r")",
    re.IGNORECASE | re.DOTALL,
)


def ends_transaction(sql: str) -> bool:
    """Whether the server would commit or roll back, or begin another transaction; not those of savepoints."""
    return _WORDS.match(sql) is not None
