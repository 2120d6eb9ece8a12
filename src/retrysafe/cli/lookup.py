"""Finds the record that is meant: by its key, the first digits of its id, or what its id is made of."""

import re
import sys

from retrysafe._core import keys
from retrysafe._core.model import Door, Parts
from retrysafe.cli import output
from retrysafe.cli.exits import Exit, Failure
from retrysafe.stores.admin import Admin, Query, Sighting

FEWEST_DIGITS = 6
"""One in 16 million is another's; logs show eight."""

_DIGITS = re.compile(rf"[0-9a-fA-F]{{{FEWEST_DIGITS},64}}")
_DOORS: tuple[Door, ...] = ("request", "callback", "operation")
_MANY = 10


def matching(admin: Admin, text: str, door: Door | None, scope: Parts) -> list[Sighting]:
    """Every record that the text may mean, with its body."""
    if not text:
        raise Failure("the key is empty", "Give a key, or the first digits of a record's id.", Exit.USAGE)
    wanted = [Query(door=door, scope=scope, key=key) for key in _spellings(text)]
    if _DIGITS.fullmatch(text):
        wanted.append(Query(door=door, scope=scope, id=text.lower()))
    if scope:
        # Records that keep no key are found by what their identity was made of.
        doors = (door,) if door else _DOORS
        orders = {scope, tuple(sorted(scope))}
        wanted += [
            Query(id=keys.digest(one, parts, key).hex())
            for key in _spellings(text)
            for one in doors
            for parts in orders
        ]
    found: dict[bytes, Sighting] = {}
    for query in wanted:
        for sighting in admin.find(query, _MANY):
            found.setdefault(sighting.record.id, sighting)
    return list(found.values())


def _spellings(text: str) -> list[str]:
    """The key as it was typed, and as it is meant if it was copied with its quotation marks."""
    if text.startswith('"') and text.isascii():
        parsed = keys.parse_key([text.encode("ascii")])
        if isinstance(parsed, str):
            return [text, parsed]
    return [text]


def the_one(admin: Admin, text: str, door: Door | None, scope: Parts) -> Sighting:
    """The record that is meant, or a failure that says why there is not exactly one."""
    found = matching(admin, text, door, scope)
    if len(found) == 1:
        return found[0]
    if found:
        raise Ambiguous(found)
    narrowed = " with this door and scope" if door and scope else " with this door" if door else ""
    narrowed = narrowed or (" with this scope" if scope else "")
    raise Failure(
        f"no record{narrowed} has this key, or an id that begins like this",
        "It may have expired, or somebody released it: retrysafe audit tells. Where only digests of keys are "
        "kept, add the whole scope, as in --scope tenant=acme.",
    )


class Ambiguous(Failure):
    """Several records are meant, and nobody but the operator can tell which."""

    def __init__(self, found: list[Sighting]) -> None:
        super().__init__(
            f"{'at least ' if len(found) >= _MANY else ''}{len(found)} records match",
            "Name one by its id, or narrow it down with --scope or --door.",
        )
        self.found = found


def one_or_listing(admin: Admin, key: str, door: Door | None, scope: Parts, *, show_keys: bool) -> Sighting:
    """The record that is meant; where there are several, they are listed before it fails."""
    try:
        return the_one(admin, key, door, scope)
    except Ambiguous as several:
        from retrysafe.cli.render_tables import listing

        output.tell(listing(several.found, show_keys=show_keys, stream=sys.stderr))
        raise
