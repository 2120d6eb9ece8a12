"""The page about testing: its tests are run, its message is the real one, its arguments are all of them."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.views.decorators.csrf import csrf_exempt
from fastapi.testclient import TestClient

from retrysafe.testing import assert_idempotent
from retrysafe.testing.assertions import CONCURRENT, How
from tests.docs.pages import ROOT, page
from tests.docs.running import told
from tests.docs.test_django import run_case
from tests.docs.test_documented import cells, row
from tests.testing import django_shop

PAGE = page("docs/testing.md")
KEY = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@pytest.fixture
def names(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """What the page defines."""
    with told("docs/testing.md", tmp_path) as story:
        yield story.names


def names_of_tests() -> list[str]:
    found = [re.findall(r"^(?:async )?def (test_\w+)", block.text, re.M) for block in PAGE.blocks]
    return [name for several in found for name in several]


@pytest.mark.parametrize("name", [name for name in names_of_tests() if "django" not in name])
def test_its_tests_pass(names: dict[str, Any], name: str) -> None:
    """And they do send something: the handler has run, once for each key."""
    if "memory" in name:
        names[name](TestClient(names["app"]))
    elif "async" in name:
        asyncio.run(names[name]())
    else:
        names[name]()
    assert len(names["charged"]) == (4 if "registering" in name else 3)


def test_its_test_of_django_passes(names: dict[str, Any]) -> None:
    """In a project that has the view which the page speaks of."""
    shop: Any = ModuleType("urls")

    def pay(request: Any) -> Any:
        names["charged"].append(request.POST["amount"])
        return django_shop.http.JsonResponse({"charged": request.POST["amount"]}, status=201)

    shop.urlpatterns = [django_shop.urls.path("payments", csrf_exempt(pay))]
    with django_shop.test.override_settings(ROOT_URLCONF=shop):
        names["test_paying_twice_with_django"]()
    assert len(names["charged"]) == 3


def test_its_test_inside_of_django_passes(names: dict[str, Any]) -> None:
    """As Django's runner has it: with another user it is four runs."""
    from django.core.management import call_command

    from retrysafe.django.settings import close_guards

    shop: Any = ModuleType("urls")
    shop.urlpatterns = names["urlpatterns"]
    case = names["PayingTwice"]
    case.databases = {"default"}
    call_command("migrate", run_syncdb=True, verbosity=0)
    with django_shop.test.override_settings(ROOT_URLCONF=shop):
        run_case(case)
    close_guards()
    assert len(names["charged"]) == 4


def test_its_message_is_the_real_one(names: dict[str, Any]) -> None:
    def pay(payment: dict[str, int]) -> dict[str, int]:
        names["charged"].append(payment["amount"])
        return {"charged": payment["amount"]}

    names["app"].post("/unprotected", status_code=201)(pay)
    with pytest.raises(AssertionError) as caught:
        assert_idempotent(
            TestClient(names["app"]),
            "POST",
            "/unprotected",
            json={"amount": 5},
            effects=lambda: len(names["charged"]),
        )
    [shown] = [block.text for block in PAGE.blocks if block.language == "text"]
    assert re.sub(KEY, "KEY", f"{caught.value}\n") == re.sub(KEY, "KEY", shown)


def test_what_it_says_is_said() -> None:
    """Each part of a sentence on the page is in one that the tests have seen to the letter."""
    table = PAGE.text.partition("| it says |")[2].partition("\n\n")[0]
    quoted = [cells(line)[0].strip("`") for line in table.splitlines()[2:]]
    assert len(quoted) > 10
    tests = (ROOT / "tests" / "testing").glob("test_assert_idempotent*.py")
    said = "".join(re.sub(r'"\s+f?"', "", test.read_text(encoding="utf-8")) for test in tests)
    assert [one for one in quoted if one not in said] == []


@pytest.mark.parametrize("name", ["effects", *How.__annotations__])
def test_arguments(name: str) -> None:
    """Every argument has a row, alone or with its kind."""
    table = PAGE.text.partition("| argument |")[2].partition("\n\n")[0]
    assert any(f"`{name}`" in cells(line)[0] for line in table.splitlines() if line.startswith("| `"))


def test_numbers() -> None:
    words = {5: "five"}
    assert f"the same {words[CONCURRENT]} times at once" in PAGE.text
    assert f"sent at once, {CONCURRENT}." in row(PAGE.text, "concurrent")
