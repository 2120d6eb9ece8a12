"""What the page about coverage prints is what the command prints."""

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.cli.terminal import run
from tests.docs.pages import page
from tests.docs.running import story

COVERAGE = page("docs/coverage.md")


def test_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The application of the page, saved under the name that it says."""
    saved = next(block for block in COVERAGE.blocks if block.file == "shop.py")
    (tmp_path / "shop.py").write_text(saved.text)
    monkeypatch.chdir(tmp_path)
    transcript = next(block for block in COVERAGE.blocks if block.language == "console").text
    command, _, printed = transcript.partition("\n")
    assert run(*command.split()[2:]).out == printed


def test_the_assertion() -> None:
    """The test of the page passes, and without its exemption it does not."""
    names = story("docs/coverage.md").names
    names["test_every_route_is_protected"]()
    with pytest.raises(AssertionError, match=r"POST /refunds .* is not protected"):
        names["assert_protected"](names["app"])


def test_the_assertion_of_django() -> None:
    """It reads the project's views: one that was forgotten is named."""
    from django.http import HttpResponse
    from django.test.utils import override_settings
    from django.urls import path
    from django.views.decorators.http import require_POST

    assert_it = story("docs/coverage.md").names["test_every_view_is_protected"]
    assert_it()
    urls: Any = ModuleType("urls")
    urls.urlpatterns = [path("refunds/", require_POST(lambda _: HttpResponse()))]
    with (
        override_settings(ROOT_URLCONF=urls),
        pytest.raises(AssertionError, match=r"POST /refunds/ .* is not protected"),
    ):
        assert_it()


def test_findings() -> None:
    """Each check has a row with its level."""
    rows = set(re.findall(r"^\| `(\w+)` \| (\w+) \|", COVERAGE.text, re.M))
    judge = (Path(__file__).parents[2] / "src/retrysafe/coverage/judge.py").read_text(encoding="utf-8")
    model = (Path(__file__).parents[2] / "src/retrysafe/coverage/model.py").read_text(encoding="utf-8")
    made = set(re.findall(r'Finding\(\s*"(\w+)",\s*"(\w+)",', judge + model))
    assert len(made) > 5
    assert rows == made
