"""`python -m retrysafe.testing.reference asgi --store URL --port N`"""

import argparse
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from wsgiref.types import WSGIApplication

from retrysafe import Guard, profiles
from retrysafe.errors import ConfigurationError
from retrysafe.policy import Options
from retrysafe.testing.reference import tables
from retrysafe.testing.reference.databases import database_of, is_asynchronous, open_store
from retrysafe.testing.reference.journal import Files, Journal
from retrysafe.testing.reference.principals import signed_in_or_public
from retrysafe.testing.reference.serve_wsgi import THREADS
from retrysafe.testing.reference.service import Service

# As long as the library's own default: most supervisors send SIGKILL after 30 s.
GRACE = 30.0

log = logging.getLogger("retrysafe.testing.reference")


class Making(NamedTuple):
    """What it is made of, in whichever process."""

    guard: Callable[[], Guard]
    journal: Callable[[Guard], Journal]
    tables: Callable[[], None]
    """Creates those that it needs: once, before it is served."""


# Each imports what it needs itself: a WSGI server has no use for an event loop, nor the other way round.


def _asgi(given: argparse.Namespace, make: Making) -> None:
    from retrysafe.testing.reference.asgi import build
    from retrysafe.testing.reference.serve import serve

    guard = make.guard()
    app = build(Service(make.journal(guard)), guard)
    serve(app, guard, port=given.port, workers=given.workers, grace=given.grace)


def _django(given: argparse.Namespace, make: Making) -> None:
    from retrysafe.testing.reference.django import build

    _serve_wsgi(given, make, build)


def _django_async(given: argparse.Namespace, make: Making) -> None:
    from retrysafe.testing.reference.django import build_asynchronous
    from retrysafe.testing.reference.serve import serve

    guard = make.guard()
    app = build_asynchronous(Service(make.journal(guard)), guard)
    serve(app, guard, port=given.port, workers=given.workers, grace=given.grace)


def _fastapi(given: argparse.Namespace, make: Making) -> None:
    from retrysafe.testing.reference.fastapi import build
    from retrysafe.testing.reference.serve import serve

    guard = make.guard()
    app = build(Service(make.journal(guard)), guard)
    serve(app, guard, port=given.port, workers=given.workers, grace=given.grace)


def _flask(given: argparse.Namespace, make: Making) -> None:
    from retrysafe.testing.reference.flask import build

    _serve_wsgi(given, make, build)


def _wsgi(given: argparse.Namespace, make: Making) -> None:
    from retrysafe.testing.reference.wsgi import build

    _serve_wsgi(given, make, build)


def _serve_wsgi(
    given: argparse.Namespace, make: Making, build: Callable[[Service, Guard], WSGIApplication]
) -> None:
    from retrysafe.testing.reference.serve_wsgi import Loaded, Serving, serve

    def load() -> Loaded:
        guard = make.guard()
        journal = make.journal(guard)
        return Loaded(build(Service(journal), guard), guard, journal)

    serve(load, Serving(given.server, given.port, given.workers, given.grace, given.preload))


WITHOUT_LOOP = ("django", "flask", "wsgi")
ON_DJANGO = ("django", "django-async")

FRAMEWORKS: dict[str, Callable[[argparse.Namespace, Making], None]] = {
    "asgi": _asgi,
    "django": _django,
    "django-async": _django_async,
    "fastapi": _fastapi,
    "flask": _flask,
    "wsgi": _wsgi,
}


def parser() -> argparse.ArgumentParser:
    """What is not given is not passed on: the library's own default holds."""
    found = argparse.ArgumentParser(
        prog="python -m retrysafe.testing.reference",
        description="The reference application: everything that breaks an idempotency layer.",
    )
    found.add_argument("framework", choices=sorted(FRAMEWORKS))
    found.add_argument(
        "--store",
        required=True,
        metavar="URL",
        help="such as sqlite:///keys.db, or with a driver of SQLAlchemy's; for django and django-async the "
        "project's database",
    )
    found.add_argument("--port", required=True, type=int, help="0: any that is free")
    found.add_argument("--workers", default=1, type=_positive, help="processes sharing the store")
    # The library has an option of that name, which is another thing.
    found.add_argument("--effects", dest="file", type=Path, help="a line for every effect")
    found.add_argument("--tx", action="store_true", help="effects are rows in the store's database")
    found.add_argument("--grace", default=GRACE, type=float, metavar="S")
    wsgi = found.add_argument_group("django, flask and wsgi")
    wsgi.add_argument("--server", choices=("gthread", "sync", "waitress"), help="gthread, if not said")
    wsgi.add_argument("--preload", action="store_true", help="load the application before the fork")
    policy = found.add_argument_group("policy", argument_default=argparse.SUPPRESS)
    policy.add_argument("--profile", choices=sorted(profiles.PROFILES))
    for name in ("--lease", "--retention", "--wait-for"):
        policy.add_argument(name, type=float, metavar="S")
    policy.add_argument("--abandoned", choices=("hold", "retry"))
    policy.add_argument("--failed", choices=("replay", "retry", "conflict"))
    policy.add_argument("--in-flight", choices=("reject", "wait"))
    policy.add_argument("--fingerprint", choices=("raw", "json"))
    policy.add_argument("--required", action="store_true")
    for name in ("--max-response", "--max-request"):
        policy.add_argument(name, type=int, metavar="BYTES")
    return found


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def _contradiction(given: argparse.Namespace) -> str | None:
    if given.framework not in WITHOUT_LOOP and (given.server or given.preload):
        return "--server and --preload are for django, flask and wsgi"
    given.server = given.server or "gthread"
    if given.server == "waitress" and (given.preload or given.workers > 1):
        return "waitress is one process: --workers and --preload are for gunicorn's gthread and sync"
    for option in ("failed", "abandoned"):
        if given.tx and option in given:
            return (
                f"--{option} means nothing with --tx: what failed or was killed there is rolled back, "
                "and the retry runs"
            )
    if given.framework in WITHOUT_LOOP and given.tx and is_asynchronous(given.store):
        return f"{given.framework} has no event loop, which the driver of --store needs: use another, or asgi"
    return None


def _on_its_own(given: argparse.Namespace, told: dict[str, Any], file: Path) -> Making:
    def make_guard() -> Guard:
        return Guard(open_store(given.store), scope=signed_in_or_public, **told)

    def make_journal(guard: Guard) -> Journal:
        return (
            tables.Tables(database_of(given.store, guard), tables.dialect_of(given.store), file)
            if given.tx
            else Files(file)
        )

    def make_tables() -> None:
        if given.tx:
            tables.create(given.store)

    return Making(make_guard, make_journal, make_tables)


def _on_django(given: argparse.Namespace, told: dict[str, Any], file: Path) -> Making:
    """There is one project in a process: it is configured here, and workers are forked with it."""
    from retrysafe.testing.reference.django import project

    project.configure(given.store, told)

    def make_journal(_: Guard) -> Journal:
        return (
            tables.Tables(project.Database(), tables.dialect_of(given.store), file)
            if given.tx
            else Files(file)
        )

    def make_tables() -> None:
        project.migrate()
        if given.tx:
            tables.create(given.store)

    return Making(project.guard, make_journal, make_tables)


def main() -> None:
    arguments = parser()
    given = arguments.parse_args()
    try:
        complaint = _contradiction(given)
    except ConfigurationError as error:
        complaint = str(error)
    if complaint is not None:
        arguments.error(complaint)
    said = {name: value for name, value in vars(given).items() if name in Options.__annotations__}
    logging.basicConfig(format="%(process)d %(levelname)s %(name)s: %(message)s")
    logging.getLogger("retrysafe").setLevel(logging.INFO)

    if given.tx:
        said["effects"] = "database"
        if given.file is not None:
            log.warning("--effects is not used with --tx, effects are rows: it only says where attempts are")
    # One that is killed cannot remove it: so there is none where the caller has a place.
    scratch = None if given.file else tempfile.mkdtemp(prefix="retrysafe-reference-")
    owner = os.getpid()
    file = given.file or Path(str(scratch), "effects")

    told = {
        "grace": given.grace,
        "wait_threads": THREADS // 4,
        # Wire and policy only: all routes stay covered.
        "profile": profiles.get(given.profile)._replace(paths=None) if "profile" in given else None,
        **said,
    }
    try:
        try:
            make = (_on_django if given.framework in ON_DJANGO else _on_its_own)(given, told, file)
            # What is wrong with it is said here, and not in a worker's log.
            guard = make.guard()
            make.journal(guard)
            guard.close()
            make.tables()
        except ConfigurationError as error:
            arguments.error(str(error))
        FRAMEWORKS[given.framework](given, make)
    finally:
        if scratch is not None and os.getpid() == owner:  # gunicorn's workers come by here too, when they end
            shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
