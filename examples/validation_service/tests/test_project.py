"""The project as Django's commands see it: checks, migrations, routes, its description of the API, tests."""

import json
import re
from typing import Any

import pytest
import yaml

from examples.validation_service.tests.conftest import ROOT, ran

README = ROOT / "examples" / "validation_service" / "README.md"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    database = f"sqlite:///{tmp_path_factory.mktemp('project')}/validation.db"
    ran("manage", "migrate", "--verbosity=0", VALIDATION_DATABASE=database)
    return database


def test_checks_and_migrations(database: str) -> None:
    """Nothing to complain about; and the models are what the migrations make, backwards too."""
    checked = ran("manage", "check", "--fail-level=WARNING", VALIDATION_DATABASE=database)
    assert "no issues" in checked.stdout
    ran("manage", "makemigrations", "--check", "--dry-run", VALIDATION_DATABASE=database)
    other = database.replace("validation.db", "reversed.db")
    for command in ("migrate", "migrate validations zero", "migrate retrysafe zero", "migrate"):
        ran("manage", *command.split(), "--verbosity=0", VALIDATION_DATABASE=other)


def test_every_mutating_endpoint_is_protected(database: str) -> None:
    """A team runs this in CI, so that no endpoint is shipped that was forgotten."""
    listed = ran("manage", "idempotency_routes", "--fail-unprotected", "--json", VALIDATION_DATABASE=database)
    routes: list[dict[str, Any]] = json.loads(listed.stdout)["routes"]
    assert {route["path"] for route in routes} == {
        "/api/workflows/",
        "/api/workflows/{pk}/start/",
        "/api/runs/{pk}/cancel/",
        "/api/callbacks/",
    }


def test_an_endpoint_that_was_forgotten(database: str) -> None:
    forgotten = ran(
        "manage",
        "idempotency_routes",
        "--fail-unprotected",
        "--settings=examples.validation_service.tests.forgotten.settings",
        expected=1,
        VALIDATION_DATABASE=database,
    )
    assert "/api/invoices/" in forgotten.stdout + forgotten.stderr


def test_the_description_of_the_api(database: str) -> None:
    """Everything that changes something shows a key to send, the headers of a replay, and the refusals."""
    described = ran("manage", "spectacular", "--validate", "--fail-on-warn", VALIDATION_DATABASE=database)
    paths: dict[str, Any] = yaml.safe_load(described.stdout)["paths"]
    mutating = {
        path: operation
        for path, methods in paths.items()
        for method, operation in methods.items()
        if method == "post"
    }
    assert set(mutating) == {"/api/workflows/", "/api/workflows/{id}/start/", "/api/runs/{id}/cancel/"}
    for path, operation in mutating.items():
        [key] = [one for one in operation["parameters"] if one["name"] == "Idempotency-Key"]
        examples = [key.get("example"), *(one["value"] for one in key.get("examples", {}).values())]
        assert any(examples), f"{path} shows no key"
        assert {"400", "409", "422"} <= set(operation["responses"])
        success = next(one for status, one in operation["responses"].items() if status.startswith("2"))
        assert {"Idempotent-Replayed", "Original-Request-Id"} <= set(success["headers"])


def test_keys_in_every_example_of_the_readme() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    commands = [one for block in blocks for one in re.split(r"\n(?=\S)", block) if one.startswith("curl")]
    changing = [one for one in commands if "--json" in one or "-X POST" in one]
    assert changing
    assert all("Idempotency-Key: " in one for one in changing)


def test_the_tests_of_the_project() -> None:
    """Those that a team writes for its own project, with Django's test runner."""
    arguments = ("--top-level-directory=.", "examples/validation_service/validations")
    shown = ran("manage", "test", *arguments, VALIDATION_DATABASE="sqlite:///unused.db").stderr
    found = re.search(r"Ran (\d+) tests", shown)
    assert found is not None, shown
    assert int(found[1]) > 20


def test_a_client_that_is_added(database: str) -> None:
    """Its token is shown once, and only its digest is stored."""
    arguments = ("add_organisation", "east", "--quota=5")
    token = ran("manage", *arguments, VALIDATION_DATABASE=database).stdout.strip()
    again = ran("manage", *arguments, "--read-only", VALIDATION_DATABASE=database).stdout.strip()
    assert len(token) > 30
    assert token != again
    stored = (ROOT / database.removeprefix("sqlite:///")).read_bytes()
    assert token.encode() not in stored
