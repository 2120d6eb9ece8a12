"""A project of Django's for tests: settings that all tests of a process share, and a database of its own.

Django has one set of settings in a process, so whatever test needs any configures these, and overrides what
is different.  It is not Django's test environment: the store has connections of its own here, as in a
service.
"""

import atexit
import importlib.util
import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import django
import pymysql
from django.conf import settings

_folder = Path(tempfile.gettempdir())


def folder() -> Path:
    """Of this process, for its databases and other files."""
    return _folder


def configure() -> None:
    """Have Django's settings, once in a process."""
    global _folder
    if settings.configured:
        return
    _folder = Path(tempfile.mkdtemp(prefix="retrysafe-django-"))
    atexit.register(shutil.rmtree, _folder, ignore_errors=True)
    settings.configure(
        SECRET_KEY="of tests alone",
        ALLOWED_HOSTS=["*"],
        USE_TZ=True,
        ROOT_URLCONF="tests.django.urls",
        INSTALLED_APPS=[
            "django.contrib.admin",
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.messages",
            "django.contrib.sessions",
            "rest_framework",
            "drf_spectacular",
            "retrysafe.django",
            "tests.django.shop",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.common.CommonMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
            "tests.django.signing.SignIn",
            "retrysafe.django.Middleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "DIRS": [],
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        DATABASES={"default": sqlite("default"), "second": sqlite("second")},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        STATIC_URL="/static/",
        RETRYSAFE={"DATABASE": "default"},
        REST_FRAMEWORK={
            "DEFAULT_AUTHENTICATION_CLASSES": ["tests.django.signing.Bearer"],
            "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
        },
        LOGGING_CONFIG=None,
    )
    django.setup()


TEMPLATE = "template.db"
"""A database with all tables, to be copied: to migrate takes a second, and there are hundreds of tests."""


def sqlite(name: str) -> dict[str, Any]:
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(_folder / f"{name}.db")}


def postgresql(url: str) -> dict[str, Any]:
    """A database of Django's at the address of a fixture."""
    return _at(url, "django.db.backends.postgresql")


def mysql(url: str) -> dict[str, Any]:
    """The same on MariaDB, by mysqlclient where it is installed, and PyMySQL in its place elsewhere."""
    if importlib.util.find_spec("MySQLdb") is None:
        pymysql.install_as_MySQLdb()
    return _at(url, "django.db.backends.mysql")


def _at(url: str, engine: str) -> dict[str, Any]:
    from urllib.parse import parse_qs, unquote, urlsplit

    found = urlsplit(url)
    host = found.hostname or parse_qs(found.query).get("host", [""])[0]
    return {
        "ENGINE": engine,
        "NAME": found.path.lstrip("/"),
        "USER": unquote(found.username or ""),
        "PASSWORD": unquote(found.password or ""),
        "HOST": host,
        "PORT": str(found.port or ""),
    }


@contextmanager
def database(alias: str, said: Mapping[str, Any]) -> Generator[None]:
    """Have an alias name another database, with tables: its own, or those of the template."""
    from django.core.management import call_command
    from django.db import connections

    from retrysafe.django.settings import close_guards

    every = connections.settings
    before = every.get(alias)
    every[alias] = every["default"] | {"OPTIONS": {}, **said}
    settings.DATABASES[alias] = every[alias]
    drop_connection(alias)
    template, file = _folder / TEMPLATE, Path(str(said["NAME"]))
    # Other aliases have other tables: records are in one database alone.
    copied = alias == "default" and said["ENGINE"].endswith("sqlite3") and file.is_absolute()
    if copied and template.exists() and not file.exists():
        shutil.copy(template, file)
    try:
        if "django_migrations" not in connections[alias].introspection.table_names():
            call_command("migrate", database=alias, run_syncdb=True, verbosity=0)
        yield
    finally:
        close_guards()
        drop_connection(alias)
        if before is None:
            for one in (every, settings.DATABASES):
                one.pop(alias, None)
        else:
            every[alias] = settings.DATABASES[alias] = before


def drop_connection(alias: str) -> None:
    """This thread's connection."""
    from django.db import connections

    if hasattr(vars(connections)["_connections"], alias):
        connections[alias].close()
        del connections[alias]
