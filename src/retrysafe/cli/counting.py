"""What follows from the numbers of a store: duplicates, calls without a key, and their shares."""

from collections.abc import Mapping

from retrysafe.cli.format import clean, iso, share_document
from retrysafe.cli.redaction import redacted_scope
from retrysafe.stores.admin import WITHOUT_KEY, Calls, Place, Source, Statistics

DUPLICATES = frozenset({"replayed", "in-flight", "key-reused", "outcome-unknown", "previously-failed"})
"""Verdicts of calls whose key had been used before."""


def duplicates(verdicts: Mapping[str, int]) -> int:
    return sum(number for verdict, number in verdicts.items() if verdict in DUPLICATES)


def duplicate_rate(verdicts: Mapping[str, int]) -> float | None:
    """The share of duplicates among calls with a key; `None` if none was counted."""
    keyed = sum(verdicts.values()) - without_key(verdicts)
    return duplicates(verdicts) / keyed if keyed else None


def without_key(verdicts: Mapping[str, int]) -> int:
    """Calls without a key, served or refused for it."""
    return sum(number for verdict, number in verdicts.items() if verdict in WITHOUT_KEY)


def share_without_key(verdicts: Mapping[str, int]) -> float | None:
    """Their share of all calls; `None` if none was counted."""
    counted = sum(verdicts.values())
    return without_key(verdicts) / counted if counted else None


def last_without_key(calls: Calls) -> float | None:
    """When the last of them was counted: it says more than the share, which has all that was ever counted."""
    return max((at for verdict, at in calls.last.items() if verdict in WITHOUT_KEY), default=None)


def redelivered(source: Source) -> int:
    """Deliveries of events that had been delivered before."""
    return source.deliveries - source.events


def place_text(place: Place) -> str:
    """Where calls were made, for people."""
    route, source = clean(place.route), clean(place.source)
    if place.door == "request":
        return route or "other requests"
    if route and source:
        return f"{route} ({place.door} from {source})"
    return f"{route or source or 'others'} ({place.door})"


def document(found: Statistics, completed: str = "completed") -> dict[str, object]:
    """The statistics in JSON, as docs/cli.md has them: scripts rely on names and meanings."""
    rate = duplicate_rate(found.verdicts)
    return {
        "now": iso(found.now),
        **share_document(found.total, completed),
        "expired": found.expired,
        "oldest_in_progress": _since(found.oldest_running, found.now),
        "oldest_abandoned": _since(found.oldest_abandoned, found.now),
        "oldest_waiting": _due(found.oldest_due, found.now),
        "verdicts": dict(found.verdicts),
        "counted": sum(found.verdicts.values()),
        "counted_since": iso(found.counted_since),
        "duplicates": duplicates(found.verdicts),
        "duplicate_rate": _rounded(rate),
        "without_key": without_key(found.verdicts),
        "share_without_key": _rounded(share_without_key(found.verdicts)),
        "calls": [
            {
                **place._asdict(),
                "counted": sum(calls.verdicts.values()),
                "counted_since": iso(calls.since),
                "without_key": without_key(calls.verdicts),
                "share_without_key": _rounded(share_without_key(calls.verdicts)),
                "last_without_key": iso(last_without_key(calls)),
                "duplicates": duplicates(calls.verdicts),
                "verdicts": dict(calls.verdicts),
            }
            for place, calls in found.calls.items()
        ],
        "by_door": {door: share_document(share, completed) for door, share in found.by_door.items()},
        "by_route": [
            {"action": action, "target": target, **share_document(share, completed)}
            for (action, target), share in found.by_route.items()
        ],
        "by_scope": [
            {"scope": redacted_scope(dict(parts)), **share_document(share, completed)}
            for parts, share in found.by_scope.items()
        ],
        "by_source": [
            {
                "source": name,
                "events": source.events,
                "deliveries": source.deliveries,
                "duplicates": redelivered(source),
                "duplicate_rate": _rounded(redelivered(source) / source.deliveries),
                "handled": source.handled,
                "average_seconds": _rounded(source.seconds),
                "longest_seconds": _rounded(source.longest),
            }
            for name, source in found.by_source.items()
        ],
    }


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 6)


def _due(at: float | None, now: float) -> dict[str, object] | None:
    return None if at is None else {"due_at": iso(at), "waited": round(max(now - at, 0.0), 3)}


def _since(at: float | None, now: float) -> dict[str, object] | None:
    return None if at is None else {"created_at": iso(at), "age": round(now - at, 3)}
