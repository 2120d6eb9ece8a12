"""`retrysafe routes`: which mutating routes of an application are protected?"""

from typing import TYPE_CHECKING, Annotated

import typer

from retrysafe.cli import output, projects
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.options import JsonOption

if TYPE_CHECKING:
    from retrysafe.coverage import Coverage


def routes(
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="APP",
            help="The application, as servers take it: module:name, such as shop.main:app. Below manage.py "
            "it is the project, unless another one is named.",
            show_default=False,
        ),
    ] = None,
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
    from retrysafe.cli.application import guard_names
    from retrysafe.coverage.report import complaint, document

    named, examined = _examined(app, factory=factory)
    found = examined.excepting(exempted or ())
    names = guard_names(found.guards)
    if json:
        output.write_json(document(named, found, names))
    else:
        from retrysafe.cli.render_routes import render_routes

        output.draw(*render_routes(found, names))
    if fail_unprotected and (said := complaint(found)):
        raise Failure(said, exit=Exit.FOUND)


def _examined(app: str | None, *, factory: bool) -> "tuple[str, Coverage]":
    """The application as it is named, and what there is in it."""
    from retrysafe.cli.application import load_application
    from retrysafe.coverage import examine

    project = projects.current()
    if app is not None:
        return app, examine(load_application(app, factory=factory))
    if project is None:
        raise Failure("no application was given", "Name it as servers take it: shop.main:app.", Exit.USAGE)
    return project.name, project.examine()
