"""The routes of an application, drawn: unprotected ones first, because they are what one looks for."""

from rich.console import RenderableType
from rich.text import Text

from retrysafe.cli.format import clean, plural
from retrysafe.cli.render_findings import Line, render_findings
from retrysafe.cli.render_tables import Column, table
from retrysafe.coverage import Coverage, Route, State

# No field but the last contains a space, unless a path has one.
_COLUMNS = (
    Column("METHOD"),
    Column("PATH", narrowest=20, fold=True),
    Column("STATE"),
    Column("BY", rank=1),
    Column("EFFECTS", rank=2),
    Column("GUARD", narrowest=8, rank=3),
    Column("PROFILE", rank=4),
    Column("SCOPE OR REASON", narrowest=20, fold=True),
)

_STYLES: dict[State, str] = {
    "unprotected": "bold red",
    "exempt": "dim",
    "optional": "green",
    "warn": "green",
    "required": "bold green",
}


def render_routes(found: Coverage, names: dict[int, str]) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if found.routes:
        ordered = sorted(found.routes, key=lambda route: route.state != "unprotected")
        parts += [table(_COLUMNS, [_cells(route, names) for route in ordered]), ""]
    if found.findings:
        parts += [render_findings(_line(*finding) for finding in found.findings), ""]
    return [*parts, _summary(found)]


def _line(check: str, level: str, found: str, advice: str, routes: tuple[str, ...]) -> Line:
    from retrysafe.coverage.model import enumerated

    return Line(check, level, f"{enumerated(routes)}: {found}" if routes else found, advice)


def _cells(route: Route, names: dict[int, str]) -> list[Text]:
    protection = route.protection
    profile = protection.guard.profile if protection else None
    return [
        Text(clean(route.method), "bold"),
        Text(clean(f"{route.host}{route.path}")),
        Text(route.state, _STYLES[route.state]),
        Text(protection.by if protection else "-"),
        Text(protection.rules.policy.effects if protection else "-"),
        Text(clean(names[id(protection.guard)]) if protection else "-"),
        Text(profile.name if profile else "-"),
        Text(clean(_detail(route))),
    ]


def _detail(route: Route) -> str:
    if route.protection is None:
        return route.exempt or route.remark
    return f"{route.protection.scope}; {route.remark}" if route.remark else route.protection.scope


def _summary(found: Coverage) -> Text:
    if not found.routes:
        return Text("No mutating routes.")
    states = [route.state for route in found.routes]
    parts = [f"{states.count(state)} {state}" for state in _STYLES if state in states]
    bad = "unprotected" in states or any(finding.level == "problem" for finding in found.findings)
    return Text(
        f"{plural(len(states), 'mutating route')}: {', '.join(parts)}.", "bold red" if bad else "green"
    )
