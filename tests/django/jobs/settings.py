"""Its settings, as far as a test says them in the environment."""

import os

from tests.django import project

FOLDER = os.environ["JOBS_FOLDER"]
BROKER = os.environ.get("JOBS_BROKER", "memory://")
_URL = os.environ["JOBS_DATABASE"]

SECRET_KEY = "of tests alone"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
ROOT_URLCONF = "tests.django.jobs.urls"
INSTALLED_APPS = ["retrysafe.django", "tests.django.shop"]
MIDDLEWARE = ["retrysafe.django.Middleware"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": project.postgresql(_URL)
    if _URL.startswith("postgresql:")
    else {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": _URL,
        "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
    }
}
RETRYSAFE = {"SCOPE": "tests.django.jobs.urls.anyone", "EFFECTS": "database", "LEASE": 1.0}
