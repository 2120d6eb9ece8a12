"""What an examination has found, as a document and as one sentence: for every command that shows it."""

from collections.abc import Mapping

from retrysafe.coverage.model import Coverage, Route, enumerated


def complaint(found: Coverage) -> str:
    """What is wrong, in a few sentences; empty where nothing is."""
    complaints = found.complaints()
    unprotected = [route.name for route in found.unprotected]
    sentences = complaints[len(unprotected) :]
    if unprotected:
        number = len(unprotected)
        what = "1 mutating route is" if number == 1 else f"{number:,} mutating routes are"
        sentences.insert(0, f"{what} not protected: {enumerated(unprotected, most=20)}")
    return ". ".join(sentence.rstrip(".") for sentence in sentences)


def document(app: str, found: Coverage, names: Mapping[int, str]) -> dict[str, object]:
    """All of it in JSON, as docs/cli.md has it; `names` are those of guards."""
    return {
        "app": app,
        "ok": not found.complaints(),
        "protected": sum(route.protection is not None for route in found.routes),
        "exempt": sum(route.state == "exempt" for route in found.routes),
        "unprotected": len(found.unprotected),
        "routes": [_route_document(route, names) for route in found.routes],
        "findings": [{**finding._asdict(), "routes": list(finding.routes)} for finding in found.findings],
    }


def _route_document(route: Route, names: Mapping[int, str]) -> dict[str, object]:
    protection = route.protection
    profile = protection.guard.profile if protection else None
    return {
        "method": route.method,
        "path": route.path,
        "host": route.host or None,
        "endpoint": route.endpoint,
        "state": route.state,
        "by": protection.by if protection else None,
        "guard": names[id(protection.guard)] if protection else None,
        "profile": profile.name if profile else None,
        "effects": protection.rules.policy.effects if protection else None,
        "scope": protection.scope if protection else None,
        "remark": route.remark or None,
        "exempt": route.exempt,
    }
