"""`retrysafe routes`: which mutating routes of an application are protected?"""

from typing import TYPE_CHECKING, Annotated

import typer

from retrysafe.cli import output
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.format import plural
from retrysafe.cli.options import JsonOption

if TYPE_CHECKING:
    from retrysafe.coverage import Coverage, Route


def routes(
    app: Annotated[
        str,
        typer.Argument(
            metavar="APP",
            help="The application, as servers take it: module:name, such as shop.main:app.",
            show_default=False,
        ),
    ],
    factory: Annotated[
        bool, typer.Option("--factory", help="APP is a function without arguments that makes it.")
    ] = False,
    fail_unprotected: Annotated[
        bool,
        typer.Option(
            "--fail-unprotected",
            help="Exit with 1 if a route is neither protected nor exempted, or a protection does not work.",
        ),
    ] = False,
    exempted: Annotated[
        list[str] | None,
        typer.Option(
            "--except",
            metavar="PATH",
            help="A route that is meant to be unprotected: /login, '/jobs/*', 'POST /login'. Repeatable.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the mutating routes of an application, whether each is protected, and by what."""
    from retrysafe.cli.application import guard_names, load_application
    from retrysafe.coverage import examine

    found = examine(load_application(app, factory=factory)).excepting(exempted or ())
    names = guard_names(found.guards)
    if json:
        output.write_json(_document(app, found, names))
    else:
        from retrysafe.cli.render_routes import render_routes

        output.draw(*render_routes(found, names))
    if fail_unprotected and (complaints := found.complaints()):
        raise Failure(_complaint(found, complaints), exit=Exit.FOUND)


def _complaint(found: "Coverage", complaints: list[str]) -> str:
    from retrysafe.coverage.model import enumerated

    unprotected = [route.name for route in found.unprotected]
    sentences = complaints[len(unprotected) :]
    if unprotected:
        verb = "is" if len(unprotected) == 1 else "are"
        number = plural(len(unprotected), "mutating route")
        sentences.insert(0, f"{number} {verb} not protected: {enumerated(unprotected, most=20)}")
    return ". ".join(sentence.rstrip(".") for sentence in sentences)


def _document(app: str, found: "Coverage", names: dict[int, str]) -> dict[str, object]:
    return {
        "app": app,
        "ok": not found.complaints(),
        "protected": sum(route.protection is not None for route in found.routes),
        "exempt": sum(route.state == "exempt" for route in found.routes),
        "unprotected": len(found.unprotected),
        "routes": [_route_document(route, names) for route in found.routes],
        "findings": [{**finding._asdict(), "routes": list(finding.routes)} for finding in found.findings],
    }


def _route_document(route: "Route", names: dict[int, str]) -> dict[str, object]:
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
