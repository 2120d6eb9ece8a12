"""Django's settings.  What an operator sets is in the environment: README.md has a table."""

import os
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from django.core.management.utils import get_random_secret_key

from examples.validation_service.environment import LEASE


def database(address: str) -> dict[str, Any]:
    """An entry of `DATABASES`: `sqlite:///validation.db` or `postgresql://validation:secret@localhost/validation`."""
    found = urlsplit(address)
    if found.scheme == "sqlite":
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": address.removeprefix("sqlite:///"),
            "OPTIONS": {
                # A transaction that reads first and writes then would fail beside another writer.
                "transaction_mode": "IMMEDIATE",
                # Seconds to wait for other writers: all workers write to one file.
                "timeout": 20,
                "init_command": "PRAGMA journal_mode = WAL",
            },
        }
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": found.path.lstrip("/"),
        "USER": unquote(found.username or ""),
        "PASSWORD": unquote(found.password or ""),
        "HOST": found.hostname or parse_qs(found.query).get("host", [""])[0],
        "PORT": str(found.port or ""),
    }


DATABASES = {"default": database(os.environ.get("VALIDATION_DATABASE", "sqlite:///validation.db"))}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

SECRET_KEY = os.environ.get("VALIDATION_SECRET_KEY") or get_random_secret_key()
ALLOWED_HOSTS = os.environ.get("VALIDATION_HOSTS", "127.0.0.1 localhost testserver").split()

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "drf_spectacular",
    "rest_framework",
    "retrysafe.django",
    "examples.validation_service.validations",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "retrysafe.django.Middleware",
]

# --- retries

RETRYSAFE = {
    "PROFILE": "validation-api",
    # Whose key it is: a key of one organisation, at one endpoint.
    "ORGANISATION": "examples.validation_service.validations.authentication.organisation_of",
    # A run, its quota unit and the response are one transaction.
    "EFFECTS": "database",
    # Requests without a key are served, logged and counted: `manage.py idempotency_stats`.
    "REQUIRED": "warn",
    "LEASE": LEASE,
    # Expired records are removed by what is scheduled in `ops/`, and not beside requests.
    "CLEANUP_INTERVAL": None,
}
IDEMPOTENCY_KEY_TTL_HOURS = 24
CALLBACK_RECEIPT_TTL_DAYS = 30

# --- the API

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "examples.validation_service.validations.authentication.TokenAuthentication"
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "rest_framework.permissions.IsAuthenticated",
        "examples.validation_service.validations.permissions.MayChange",
    ],
    "DEFAULT_FILTER_BACKENDS": ["examples.validation_service.validations.permissions.OfOrganisation"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}

SPECTACULAR_SETTINGS = {
    "TITLE": "A validation service",
    "DESCRIPTION": (
        "Send a new `Idempotency-Key`, a UUID, with everything that changes something, and the same one with "
        "each retry of it. A retry gets the response of the first attempt, with `Idempotent-Replayed: true` "
        "and the id of that request in `Original-Request-Id`."
    ),
    "VERSION": "1.0.0",
    "ENUM_NAME_OVERRIDES": {"CheckEnum": "examples.validation_service.validations.serializers.CHECKS"},
    "SERVE_INCLUDE_SCHEMA": False,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        # The key in every example, the headers of replays, and the refusals.
        "retrysafe.django.spectacular.describe_keys",
    ],
}

# --- everything else

ROOT_URLCONF = "examples.validation_service.urls"
WSGI_APPLICATION = "examples.validation_service.wsgi.application"
STATIC_URL = "/static/"
USE_TZ = True
TIME_ZONE = "UTC"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
}
