"""Finds a record by its key or by the first digits of its id."""

import re
import sys
from collections.abc import Iterable

from retrysafe._core import keys
from retrysafe._core.model import Door, Parts
from retrysafe.cli import output
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.format import long_duration
from retrysafe.stores.admin import Admin, Query, Sighting, Standing

SHORTEST_ID = 6
"""Two records share them with a chance of one in 16 million; logs show eight."""

_DIGITS = re.compile(rf"[0-9a-fA-F]{{{SHORTEST_ID},64}}")
_MOST = 10


def build_query(
    standings: Iterable[Standing],
    door: Door | None,
    scope: Parts,
    *,
    action: str | None = None,
    path: str | None,
    request_id: str | None = None,
    older: float | None,
    younger: float | None,
) -> Query:
    """The filters of a command.  Those that can never match are a mistake, which an empty list would hide."""
    if path is not None and "*" in path[:-1]:
        raise Failure(
            "--path has a * before its end", "A * is allowed only at the end, as in '/orders/*'.", Exit.USAGE
        )
    if older is not None and younger is not None and older > younger:
        raise Failure(
            f"no record is older than {long_duration(older)} and younger than {long_duration(younger)}",
            "--older is the lowest age, --younger the highest.",
            Exit.USAGE,
        )
    return Query(
        standings=frozenset(standings),
        door=door,
        scope=scope,
        action=action,
        target=path,
        older=older,
        younger=younger,
        request_id=request_id,
    )


def find_matches(admin: Admin, text: str, door: Door | None, scope: Parts) -> list[Sighting]:
    """All records that the text may refer to, with their bodies."""
    if not text:
        raise Failure("the key is empty", "Give a key, or the first digits of a record's id.", Exit.USAGE)
    wanted = [Query(door=door, scope=scope, key=key) for key in _key_variants(text)]
    if _DIGITS.fullmatch(text):
        wanted.append(Query(door=door, scope=scope, id=text.lower()))
    found: dict[bytes, Sighting] = {}
    for query in wanted:
        for sighting in admin.find(query, _MOST):
            found.setdefault(sighting.record.id, sighting)
    return list(found.values())


def _key_variants(text: str) -> list[str]:
    """The key as typed, and without the quotation marks that a header has around it."""
    if text.startswith('"') and text.isascii():
        parsed = keys.parse_key([text.encode("ascii")])
        if isinstance(parsed, str):
            return [text, parsed]
    return [text]


def find_one(admin: Admin, text: str, door: Door | None, scope: Parts) -> Sighting:
    """The one record, or a failure that says why there is not exactly one."""
    found = find_matches(admin, text, door, scope)
    if len(found) == 1:
        return found[0]
    if found:
        raise Ambiguous(found)
    narrowed = " with this door and scope" if door and scope else " with this door" if door else ""
    narrowed = narrowed or (" with this scope" if scope else "")
    raise Failure(
        f"no record{narrowed} has this key, or an id that begins with it",
        "It may have expired, or an operator released it: see retrysafe audit. If the service stores no keys "
        "(keep_key=False), give the record's id.",
    )


class Ambiguous(Failure):
    """Several records match, and only the operator knows which one is meant."""

    def __init__(self, found: list[Sighting]) -> None:
        super().__init__(
            f"{'at least ' if len(found) >= _MOST else ''}{len(found)} records match",
            "Give the id of one, or add --scope or --door.",
        )
        self.found = found


def find_one_or_list(admin: Admin, key: str, door: Door | None, scope: Parts, *, show_keys: bool) -> Sighting:
    """The one record; if several match, they are listed before it fails."""
    try:
        return find_one(admin, key, door, scope)
    except Ambiguous as several:
        from retrysafe.cli.render_tables import records_table

        output.draw_stderr(records_table(several.found, show_keys=show_keys, stream=sys.stderr))
        raise
