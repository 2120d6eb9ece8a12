"""The Django project around the service: its settings are said by a command line, and there is one per
process.

The store is the project's database, and so is, in transactional mode, what the effects are rows in.
"""

import fcntl
import importlib.util
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

import django
from django.conf import settings
from django.core.management import call_command
from django.db import Error, connection, connections

from retrysafe import Guard, scopes
from retrysafe.errors import ConfigurationError
from retrysafe.testing.reference.databases import Rows, percent_style
from retrysafe.testing.reference.tables import LOCK

_HERE = "retrysafe.testing.reference.django"


def configure(store: str, options: Mapping[str, object]) -> None:
    """Make this process one of a project with this database; `options` are those of its guard."""
    settings.configure(
        ALLOWED_HOSTS=["*"],
        DATABASES={"default": _database(store)},
        INSTALLED_APPS=["retrysafe.django"],
        # The process has said where its log goes.
        LOGGING_CONFIG=None,
        MIDDLEWARE=[
            f"{_HERE}.layers.allow_other_origins",
            f"{_HERE}.layers.authenticate",
            "retrysafe.django.Middleware",
        ],
        REST_FRAMEWORK={
            "DEFAULT_AUTHENTICATION_CLASSES": [f"{_HERE}.layers.ByMiddleware"],
            "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
            "DEFAULT_PERMISSION_CLASSES": [f"{_HERE}.layers.Permitted"],
            "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
            "EXCEPTION_HANDLER": f"{_HERE}.views.respond_422",
            "UNAUTHENTICATED_USER": f"{_HERE}.layers.Anonymous",
        },
        RETRYSAFE={
            "DATABASE": "default",
            "SCOPE": scopes.first_of(scopes.user, scopes.public()),
            **{name.upper(): value for name, value in options.items()},
        },
        ROOT_URLCONF=f"{_HERE}.urls",
        # Derived keys are the same after a restart.
        SECRET_KEY="the reference application has no secrets",
        USE_I18N=False,
        USE_TZ=True,
    )
    django.setup()


def guard() -> Guard:
    """The project's."""
    from retrysafe.django import guard

    return guard()


def _database(store: str) -> dict[str, object]:
    """A store's address, as Django has it."""
    scheme, _, rest = store.partition(":")
    if scheme == "sqlite" and rest.startswith("///") and "?" not in rest:
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": rest.removeprefix("///")}
    if scheme in ("postgresql", "postgres"):
        return _postgresql(store)
    if scheme in ("mysql", "mariadb"):
        return _mysql(store)
    raise ConfigurationError(
        f"--store={store} is not a database of this Django project: use sqlite:///keys.db, postgresql://… or "
        "mysql://…"
    )


def _mysql(store: str) -> dict[str, object]:
    import pymysql

    if importlib.util.find_spec("MySQLdb") is None:
        pymysql.install_as_MySQLdb()
    found = urlsplit(store)
    return {
        "ENGINE": "django.db.backends.mysql",
        "NAME": found.path.lstrip("/"),
        "USER": unquote(found.username or ""),
        "PASSWORD": unquote(found.password or ""),
        "HOST": found.hostname or "",
        "PORT": str(found.port or ""),
    }


def _postgresql(store: str) -> dict[str, object]:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        found = conninfo_to_dict(store)
    except psycopg.ProgrammingError as error:
        raise ConfigurationError(f"--store is not an address of PostgreSQL's: {error}") from error
    names = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    said = {names[name]: value for name, value in found.items() if name in names}
    options = {name: value for name, value in found.items() if name not in names}
    return {"ENGINE": "django.db.backends.postgresql", **said, "OPTIONS": options}


def migrate() -> None:
    """Create the tables where they are missing, even if other processes do so at the same moment.

    Before it is served, and before any fork: no connection is left open.
    """
    try:
        with _alone():
            call_command("migrate", verbosity=0, interactive=False)
    except (Error, OSError) as error:
        raise ConfigurationError(f"the project's tables cannot be created: {error}") from error
    finally:
        connections.close_all()


@contextmanager
def _alone() -> Generator[None]:
    """One process at a time."""
    if connection.vendor == "sqlite":
        with open(f"{settings.DATABASES['default']['NAME']}.migrate", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
    else:
        with connection.cursor() as cursor:
            if connection.vendor == "mysql":
                cursor.execute("SELECT GET_LOCK(%s, 60)", [str(LOCK)])
            else:
                cursor.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        yield


class Database:
    """Django's connection to the database: in a guarded call, the one with its transaction."""

    def open(self) -> None:
        """Django opens one in each thread that asks for it."""

    def ask(self, sql: str, **values: str) -> Rows:
        with connection.cursor() as cursor:
            cursor.execute(percent_style(sql), values)
            rows: Rows = cursor.fetchall()
            return rows

    def insert(self, sql: str, **values: str) -> int:
        with connection.cursor() as cursor:
            cursor.execute(percent_style(sql), values)
            return int(cursor.rowcount)

    def close(self) -> None:
        """And closes it at the end of the request."""
