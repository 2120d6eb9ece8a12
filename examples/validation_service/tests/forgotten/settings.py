"""The service's settings, with the routes beside this file."""

from examples.validation_service.settings import *  # noqa: F403 - as projects have several settings

ROOT_URLCONF = "examples.validation_service.tests.forgotten.urls"
