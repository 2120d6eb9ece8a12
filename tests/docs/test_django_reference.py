"""Every setting, command, option, check and permission of Django's is in docs/django-reference.md."""

import re
from pathlib import Path

import pytest

from tests.django import project

project.configure()

from django.apps import apps  # noqa: E402 - Django has its settings now
from django.core.management import get_commands, load_command_class  # noqa: E402

from retrysafe import profiles  # noqa: E402
from retrysafe.django import settings  # noqa: E402
from tests.docs.pages import ROOT, page  # noqa: E402

TEXT = page("docs/django-reference.md").text
SECTIONS = {part.split("\n", 1)[0]: part for part in re.split(r"(?m)^##+ ", TEXT)[1:]}
COMMANDS = sorted(name for name, app in get_commands().items() if app == "retrysafe.django")
CHECKS = sorted(
    set(re.findall(r'"(retrysafe\.[EW]\d{3})"', (ROOT / "src/retrysafe/django/checks.py").read_text("utf-8")))
)
# As all commands of Django's have.
COMMON = {
    "--help", "--version", "--verbosity", "--settings", "--pythonpath", "--traceback", "--no-color",
    "--force-color", "--skip-checks",
}  # fmt: skip


def test_there_is_something_to_look_for() -> None:
    """The lists are really read off the code."""
    assert {"cleanup_idempotency_keys", "retrysafe"} <= set(COMMANDS)
    assert len(CHECKS) == 18


@pytest.mark.parametrize("name", sorted(settings.KNOWN))
def test_settings(name: str) -> None:
    """Each key of `RETRYSAFE` is named in the section of settings."""
    assert f"`{name}`" in SECTIONS["Settings"]


@pytest.mark.parametrize("name", [settings.TTL_HOURS, *profiles.get("job-callbacks").environment])
def test_settings_of_their_own(name: str) -> None:
    """So is each setting that is read beside it, as far as it is Django's to set."""
    assert name != settings.TTL_HOURS or f"| `{name}`" in SECTIONS["Settings"]
    assert f"`{name}`" in TEXT or f"`{name}`" in page("docs/profiles.md").text


@pytest.mark.parametrize("name", COMMANDS)
def test_commands(name: str) -> None:
    """Each has a section, a row, help of its own, and a row for each option."""
    command = load_command_class("retrysafe.django", name)
    assert f"[`{name}`](#{name})" in TEXT
    assert command.help
    options = {
        option
        for argument in command.create_parser("manage.py", name)._actions
        for option in argument.option_strings
        if option.startswith("--")
    }
    section = SECTIONS[name] + (
        SECTIONS["cleanup_idempotency_keys"] if name == "cleanup_callback_receipts" else ""
    )
    assert [option for option in sorted(options - COMMON) if f"| `{option}" not in section] == []


@pytest.mark.parametrize("id", CHECKS)
def test_checks(id: str) -> None:
    """Each has a row that says what was found and what to do, and a test."""
    (row,) = re.findall(rf"(?m)^\| `{re.escape(id)}` \| (.+) \| (.+) \|$", TEXT)
    assert all(row)
    tests = (Path(__file__).parents[1] / "django/test_checks.py").read_text("utf-8")
    assert f'"{id}"' in tests


def test_no_check_is_out_of_date() -> None:
    """The table has none that the code does not have."""
    assert sorted(re.findall(r"(?m)^\| `(retrysafe\.[EW]\d{3})`", TEXT)) == CHECKS


def test_permissions() -> None:
    """Those that a model adds to Django's own have a row."""
    own = [
        name for model in apps.get_app_config("retrysafe").get_models() for name, _ in model._meta.permissions
    ]
    assert [name for name in own if f"| `retrysafe.{name}`" not in TEXT] == []
