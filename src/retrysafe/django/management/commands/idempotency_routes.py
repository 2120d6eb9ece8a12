"""`manage.py idempotency_routes`: which mutating views of the project are protected, and by what."""

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from retrysafe import scopes
from retrysafe.cli.application import guard_names
from retrysafe.cli.exits import Exit
from retrysafe.coverage import Coverage, Route, State
from retrysafe.coverage.django import examine_project, project_name
from retrysafe.coverage.report import complaint, document
from retrysafe.django.management.operating import in_utf8, table
from retrysafe.errors import ConfigurationError

_MARKS = {"problem": "✗", "warning": "!", "note": "·"}
_STATES: tuple[State, ...] = ("unprotected", "exempt", "optional", "warn", "required")


class Command(BaseCommand):
    help = "List the mutating views of the project: whether each is protected, by what, or why it is exempt."
    # It shows in full what checks would only point at.
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--fail-unprotected",
            action="store_true",
            help="Exit with 1 if a view is neither protected nor exempt, or a protection does not work.",
        )
        parser.add_argument(
            "--except",
            action="append",
            default=[],
            dest="exempted",
            metavar="PATH",
            help="A route that is meant to be unprotected: /login/, '/jobs/*', 'POST /login/'. Repeatable.",
        )
        parser.add_argument(
            "--json", action="store_true", help="One JSON document, as of `retrysafe routes`."
        )

    def handle(self, *_: Any, **options: Any) -> None:
        try:
            found = examine_project().excepting(options["exempted"])
        except ConfigurationError as error:
            raise CommandError(str(error), returncode=Exit.USAGE) from error
        if options["json"]:
            self.stdout.write(
                json.dumps(document(project_name(), found, guard_names(found.guards)), indent=2)
            )
        else:
            for line in _lines(found):
                self.stdout.write(in_utf8(line))
        if options["fail_unprotected"] and (said := complaint(found)):
            raise CommandError(said, returncode=Exit.FOUND)


def _lines(found: Coverage) -> Iterator[str]:
    if found.routes:
        ordered = sorted(found.routes, key=lambda route: route.state != "unprotected")
        titles = ("METHOD", "PATH", "STATE", "BY", "EFFECTS", "SCOPE OR REASON")
        yield from table(titles, [_cells(route) for route in ordered])
        yield ""
    for finding in found.findings:
        yield f"{_MARKS[finding.level]} {finding}"
    if found.findings:
        yield ""
    yield _summary(found)


def _cells(route: Route) -> tuple[str, ...]:
    protection = route.protection
    if protection is None:
        return route.method, route.path, route.state, "-", "-", route.exempt or route.remark
    scope = protection.scope.replace(scopes.describe(scopes.user), "the authenticated user")
    return (
        route.method,
        route.path,
        route.state,
        protection.by,
        protection.rules.policy.effects,
        f"{scope}; {route.remark}" if route.remark else scope,
    )


def _summary(found: Coverage) -> str:
    number = len(found.routes)
    if not number:
        return "The project has no mutating views."
    states = [route.state for route in found.routes]
    counts = [f"{states.count(state)} {state}" for state in _STATES if state in states]
    return f"{number:,} mutating {'route' if number == 1 else 'routes'}: {', '.join(counts)}."
