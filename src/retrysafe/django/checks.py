"""What `manage.py check` says of a project: settings, the order of middlewares, views, and the database.

Each message has an id, a hint, and a row in `docs/django-reference.md`.  A project that is set up right hears
nothing.
"""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from types import CodeType
from typing import Any, NamedTuple

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import DEFAULT_DB_ALIAS, connections, router
from django.db.utils import Error as DatabaseError
from django.utils.module_loading import import_string

from retrysafe import scopes
from retrysafe._http.marked import Marked
from retrysafe._http.routes import Routes
from retrysafe.coverage.paths import Template
from retrysafe.django.guarded.coroutines import is_awaited
from retrysafe.django.routes import (
    View,
    asks_permission,
    authorises_itself,
    claims,
    mark_of,
    operations_of,
    receives,
    views,
)
from retrysafe.django.settings import database, guard, unprotected
from retrysafe.errors import ConfigurationError
from retrysafe.guard import Guard

TAG = "retrysafe"

_NAMED = 10
"""Routes in one message: more would push the others off the screen."""


def register_all() -> None:
    """When the applications are loaded."""
    register(check_project, TAG)
    register(check_tables, TAG, Tags.database)
    register(check_deployment, TAG, deploy=True)


class _Project(NamedTuple):
    """What is known of a project before anything is said of it."""

    guard: Guard
    views: Sequence[View]
    decorated: Sequence[View]
    """Those that claim keys themselves."""
    marks: Sequence[tuple[View, Marked]]
    """What holds for each of these, where it can hold."""
    covers: Routes | None
    """What the middleware covers."""
    middlewares: Sequence[tuple[str, object]]
    """Outermost first; `None` for one that cannot be imported, which Django says when it loads it."""

    @property
    def own(self) -> int | None:
        """Where ours stands."""
        from retrysafe.django.middleware import Middleware  # which knows the views

        for position, (_, found) in enumerate(self.middlewares):
            if isinstance(found, type) and issubclass(found, Middleware):
                return position
        return None

    @property
    def is_atomic(self) -> bool:
        """Whether any view is committed together with its response."""
        return any(mark.rules.policy.effects == "database" for _, mark in self.marks)


def check_project(**_: object) -> list[CheckMessage]:
    try:
        own, reaction = guard(), unprotected()
        from retrysafe.django.middleware import covered_routes

        covers = covered_routes(own)
    except ConfigurationError as error:
        return [Error(str(error), hint="Correct settings.RETRYSAFE.", id="retrysafe.E001")]
    every = list(views()) if getattr(settings, "ROOT_URLCONF", None) else []
    found: list[CheckMessage] = []
    decorated = [view for view in every if claims(view.callback, view.method)]
    marks: list[tuple[View, Marked]] = []
    for view in decorated:
        try:
            mark = mark_of(view.callback, view.method, own)
        except ConfigurationError as error:
            found.append(_options(view, error))
        else:
            assert mark is not None, "it claims"
            marks.append((view, mark))
    project = _Project(own, every, decorated, marks, covers, list(_middlewares()))
    for check in (_installed, _coroutines, _apis, _users, _bodies, _compression, _database):
        found += check(project)
    return [*_once(found), *_unprotected(project, reaction)]


def _once(found: Sequence[CheckMessage]) -> Iterator[CheckMessage]:
    """A function view is there by each of its methods."""
    said: set[tuple[object, str, str]] = set()
    for message in found:
        key = (message.obj, message.msg, str(message.id))
        if key not in said:
            said.add(key)
            yield message


def _middlewares() -> Iterator[tuple[str, object]]:
    for path in settings.MIDDLEWARE:
        try:
            found: Any = import_string(path)
        except ImportError:
            found = None
        yield path, found.func if isinstance(found, partial) else found


def _name(view: View) -> str:
    return view.path


# --- decorated views


def _options(view: View, error: ConfigurationError) -> CheckMessage:
    from retrysafe.django.views import ASYNC_IN_DATABASE

    if str(error) == ASYNC_IN_DATABASE:
        return Error(
            'The view is `async def`, and its effects are in Django\'s database (effects="database").',
            hint='Make it a plain `def`, which Django runs in a thread under ASGI, or say effects="outside".',
            obj=_name(view),
            id="retrysafe.E004",
        )
    return Error(
        str(error), hint="Correct the options of its @idempotent.", obj=_name(view), id="retrysafe.E003"
    )


def _installed(project: _Project) -> Iterator[CheckMessage]:
    taking = [view for view in project.views if receives(view.callback, view.method)]
    concerned = [*project.decorated, *taking]
    if not concerned or project.own is not None or any(found is None for _, found in project.middlewares):
        return
    yield Error(
        f"There are views that claim keys ({_listed(concerned)}), and MIDDLEWARE lacks "
        "'retrysafe.django.Middleware': each request with a key fails.",
        hint="Add it to MIDDLEWARE, below AuthenticationMiddleware.",
        id="retrysafe.E002",
    )


def _coroutines(project: _Project) -> Iterator[CheckMessage]:
    atomic = [alias for alias, said in connections.settings.items() if said["ATOMIC_REQUESTS"]]
    for view in project.decorated:
        if not is_awaited(view.callback):
            continue
        left_out: set[str] = getattr(view.callback, "_non_atomic_requests", set())
        if open_there := [alias for alias in atomic if alias not in left_out]:
            yield Error(
                f"The view is `async def`, and ATOMIC_REQUESTS is on for {', '.join(open_there)}: Django "
                "refuses each request to it.",
                hint="Put @transaction.non_atomic_requests above @idempotent, or make it a plain `def`.",
                obj=_name(view),
                id="retrysafe.E005",
            )


# --- what the middleware covers


class _Covered(NamedTuple):
    view: View
    scope: scopes.ScopeRule
    is_asked_again: bool
    """`reauthorise=` is asked before a replay."""


def _covered(project: _Project) -> Iterator[_Covered]:
    """Views that the middleware claims for, by some path at least."""
    covers = project.covers
    if covers is None:
        return
    with_key = {covers.rules.names.key: b""}
    for view in project.views:
        if claims(view.callback, view.method) or receives(view.callback, view.method):
            continue
        for path in Template(view.typed).samples_like(covers.patterns):
            found = covers.match(view.method, path, with_key)
            if found is not None:
                rules = found.rules.request
                yield _Covered(view, rules.scope, rules.reauthorise is not None)
                break


def _apis(project: _Project) -> Iterator[CheckMessage]:
    for view, scope, is_asked_again in _covered(project):
        if is_asked_again:
            continue
        if authorises_itself(view.callback, view.method):
            yield Error(
                "RETRYSAFE['PATHS'] covers an API view, whose authentication and permissions come after the "
                "middleware: a replay would come before them, so each request with a key is refused.",
                hint="Put @idempotent on it, next to the function, or say RETRYSAFE['REAUTHORISE'].",
                obj=_name(view),
                id="retrysafe.E006",
            )
            continue
        asked = asks_permission(view.callback, view.method)
        # Who has a key of this scope is logged in.
        if asked == "permission" or (asked == "login" and not scopes.needs_user(scope)):
            yield Warning(
                "RETRYSAFE['PATHS'] covers a view that asks itself who may call it: a replay does not ask "
                "again, such as whether a permission was withdrawn.",
                hint="Put @idempotent on it, below what asks, or say RETRYSAFE['REAUTHORISE'].",
                obj=_name(view),
                id="retrysafe.W007",
            )


def _users(project: _Project) -> Iterator[CheckMessage]:
    from retrysafe.coverage.django import what_of_user

    known = [what_of_user(found) if found is not None else "may set" for _, found in project.middlewares]
    own = len(known) if project.own is None else project.own
    covers = project.covers
    if covers is not None and "sets" in known[own:] and not {"sets", "may set"} & {*known[:own]}:
        rules = (covers.rules, *(route.rules for route in covers.routes))
        if any(scopes.needs_user(one.request.scope) for one in rules):
            yield Error(
                "'retrysafe.django.Middleware' stands above AuthenticationMiddleware, and the scope of "
                "RETRYSAFE['PATHS'] is the user, who is not known there: each request with a key is refused.",
                hint="Move it below AuthenticationMiddleware in MIDDLEWARE.",
                id="retrysafe.E007",
            )
    if {"sets", "may set"} & {*known}:
        return
    lost = [
        view
        for view, mark in project.marks
        if scopes.needs_user(mark.rules.request.scope)
        and operations_of(view.callback) is None
        and not authorises_itself(view.callback, view.method)
    ]
    lost += [one.view for one in _covered(project) if scopes.needs_user(one.scope)]
    if lost:
        yield Error(
            f"The scope of {_listed(lost)} is the user, and no middleware sets request.user: each request "
            "with a key is refused.",
            hint="Add django.contrib.auth.middleware.AuthenticationMiddleware to MIDDLEWARE, or say another "
            "scope, such as scopes.header.",
            id="retrysafe.E008",
        )


_BODY = frozenset({"POST", "FILES", "body"})


def _bodies(project: _Project) -> Iterator[CheckMessage]:
    for path, found in project.middlewares[: project.own or 0]:
        module: str = getattr(found, "__module__", None) or ""
        # Django's own read bodies in `process_view`, and so after every middleware.
        if not module.startswith("django.") and any(_reads(found)):
            yield Warning(
                f"'{path}' stands above 'retrysafe.django.Middleware', and may read bodies: of an upload "
                "that it has read there is no copy, so its key cannot be claimed.",
                hint="Move 'retrysafe.django.Middleware' above it, or silence this if it leaves forms alone.",
                id="retrysafe.W005",
            )


def _reads(middleware: object) -> Iterator[bool]:
    """Whether its code, as far as it can be seen, uses the body of a request."""
    names = ("__call__", "__acall__", "process_request")
    functions = (
        [middleware]
        if not isinstance(middleware, type)
        else [getattr(middleware, name, None) for name in names]
    )
    for function in functions:
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            yield any(_BODY & {*one.co_names} for one in _codes(code))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _compression(project: _Project) -> Iterator[CheckMessage]:
    if project.covers is None or project.own is None:
        return
    for path, found in project.middlewares[project.own + 1 :]:
        if isinstance(found, type) and any(
            f"{base.__module__}.{base.__name__}" == "django.middleware.gzip.GZipMiddleware"
            for base in found.__mro__
        ):
            yield Warning(
                f"'{path}' stands below 'retrysafe.django.Middleware', which has responses stored as they "
                "are: those of RETRYSAFE['PATHS'] are not compressed.",
                hint="Move it above 'retrysafe.django.Middleware'.",
                id="retrysafe.W006",
            )


# --- views without protection


def _unprotected(project: _Project, reaction: str | None) -> Iterator[CheckMessage]:
    if reaction == "ignore" or not project.views or any(found is None for _, found in project.middlewares):
        return
    from retrysafe.coverage.django import examine_project

    try:
        found = examine_project(certain=True)
    except ConfigurationError as error:  # an exemption that is no path
        yield Error(str(error), hint="Correct settings.RETRYSAFE.", id="retrysafe.E001")
        return
    if not found.unprotected:
        return
    if reaction is None and not any(route.protection for route in found.routes):
        return  # of a project that has just begun, everything would be said
    names = list(dict.fromkeys(f"{route.name} ({route.endpoint})" for route in found.unprotected))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    verb = "view is" if len(names) == 1 else "views are"
    message = (
        f"{len(names)} mutating {verb} not protected against retries: {', '.join(names[:_NAMED])}{more}."
    )
    hint = (
        "Put @idempotent on each, or @exempt(\"why\"); RETRYSAFE['EXEMPT'] has paths of views that are not "
        "yours. `manage.py idempotency_routes` lists all of them."
    )
    if reaction == "error":
        yield Error(message, hint=hint, id="retrysafe.E009")
    else:
        yield Warning(message, hint=hint, id="retrysafe.W001")


def _listed(found: Sequence[View]) -> str:
    paths = list(dict.fromkeys(view.path for view in found))
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return f"{', '.join(paths[:_NAMED])}{more}"


# --- the database


def _database(project: _Project) -> Iterator[CheckMessage]:
    alias = database()
    if alias is None or not project.is_atomic:
        return
    of_alias = connections.settings[alias]
    if not of_alias["AUTOCOMMIT"]:
        yield Error(
            f'AUTOCOMMIT is off for the database {alias!r}: a view with effects="database" would never be '
            "committed.",
            hint=f"Remove AUTOCOMMIT from DATABASES[{alias!r}].",
            id="retrysafe.E010",
        )
    if _is_isolated(of_alias):
        yield Warning(
            f"The isolation level of the database {alias!r} is above READ COMMITTED: a view with "
            'effects="database" may fail to commit because of another request, and its client gets an error.',
            hint="Remove isolation_level from its OPTIONS, or have clients retry with the same key.",
            id="retrysafe.W004",
        )
    written = _written()
    if written and alias not in written:
        yield Warning(
            f"The records are in the database {alias!r}, and the project's models are written to "
            f"{', '.join(sorted(written))}: responses and data are not committed together.",
            hint=f"Name the database of the models in RETRYSAFE['DATABASE'], such as {min(written)!r}.",
            id="retrysafe.W003",
        )


_READ_COMMITTED = 2
"""Of `psycopg.IsolationLevel`, whose higher levels are greater."""


def _is_isolated(of_alias: dict[str, Any]) -> bool:
    """Whether transactions of an alias are above READ COMMITTED."""
    engine, options = of_alias["ENGINE"], of_alias["OPTIONS"]
    if "mysql" in engine:
        # Without a level of its own Django sets this one, and with `None` it leaves that of the server.
        level: object = options.get("isolation_level", "read committed")
        return str(level).lower() not in ("read committed", "read uncommitted")
    level = options.get("isolation_level")
    is_postgresql = "postgresql" in engine or "postgis" in engine
    return is_postgresql and isinstance(level, int) and level > _READ_COMMITTED


def _written() -> set[str]:
    """Where the project's own models are written."""
    from django.apps import apps

    return {
        router.db_for_write(model) or DEFAULT_DB_ALIAS
        for model in apps.get_models()
        if model._meta.managed and model._meta.app_label not in _NOT_ITS_OWN
    }


_NOT_ITS_OWN = frozenset({"retrysafe", "admin", "contenttypes", "sessions"})


def check_tables(databases: Sequence[str] | None = None, **_: object) -> list[CheckMessage]:
    """`manage.py check --database default`, and the commands that name one."""
    if sys.argv[1:2] == ["migrate"]:
        return []  # which is about to make them
    try:
        alias = database()
    except ConfigurationError:
        return []  # said by the other check
    if alias is None or alias not in (databases or ()):
        return []
    from django.db.migrations.executor import MigrationExecutor

    try:
        executor = MigrationExecutor(connections[alias])
        wanted = [node for node in executor.loader.graph.leaf_nodes() if node[0] == "retrysafe"]
        missing = executor.migration_plan(wanted)
    except DatabaseError as error:
        said = str(error).partition("\n")[0]
        return [
            Warning(
                f"The tables of retrysafe cannot be looked for in the database {alias!r}: {said}",
                hint="Look whether it can be reached from here.",
                id="retrysafe.W002",
            )
        ]
    if not missing:
        return []
    names = ", ".join(str(migration.name) for migration, _ in missing)
    return [
        Warning(
            f"The database {alias!r} lacks migrations of retrysafe: {names}.",
            hint="Run `manage.py migrate`.",
            id="retrysafe.W002",
        )
    ]


def check_deployment(**_: object) -> list[CheckMessage]:
    """`manage.py check --deploy`."""
    from retrysafe.stores.memory import MemoryStore
    from retrysafe.stores.sql.django import DjangoStore
    from retrysafe.stores.sql.django.connect import is_in_memory

    try:
        store = guard().store
    except ConfigurationError:
        return []  # said by the other check
    if isinstance(store, MemoryStore) or (isinstance(store, DjangoStore) and is_in_memory(store.alias)):
        return [
            Warning(
                "The records are in memory: each process has its own, and a retry that reaches another one "
                "runs again.",
                hint="Name a database in RETRYSAFE['DATABASE'].",
                id="retrysafe.W008",
            )
        ]
    return []
