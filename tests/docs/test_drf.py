"""The page about Django REST framework: its views by a client, its tests, and what is said of refusals."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.django import project
from tests.docs.pages import page
from tests.docs.running import Story, told
from tests.docs.test_django import Project, empty, free_address, run_case, shop

__all__ = ["shop"]

PAGE = page("docs/drf.md")


def test_what_is_typed_first(shop: Project, tmp_path: Path) -> None:
    """In a project, with a user: the second request creates nothing, and is a replay."""
    folder = tmp_path / "api"
    shutil.copytree(shop.folder, folder)
    api = Project(folder)
    settings, routes = (one.text for one in PAGE.blocks[:2])
    file = folder / "shop" / "settings.py"
    installed = file.read_text(encoding="utf-8").partition("from retrysafe.django import scopes")[0]
    file.write_text(f'{installed}INSTALLED_APPS += ["orders"]\n{settings}', encoding="utf-8")
    (folder / "shop" / "urls.py").write_text(routes, encoding="utf-8")
    assert "no issues" in api.manage("check", "--database", "default")
    made = "createsuperuser --username ann"
    assert f"python manage.py {made}\n" in PAGE.text
    api.manage(*made.split(), "--noinput", "--email", "a@shop.test", DJANGO_SUPERUSER_PASSWORD="secret")
    place, address = free_address()
    with api.serve([sys.executable, "manage.py", "runserver", place, "--noreload"], address) as served:
        first, again = served.curl(PAGE), served.curl(PAGE)
    assert first.startswith("HTTP/1.1 201")
    assert "Idempotent-Replayed" not in first
    assert "Idempotent-Replayed: true" in again
    assert first.partition("\n\n")[2] == again.partition("\n\n")[2]


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    """What the page defines, in a project that has its routes."""
    project.configure()
    from django.core.management import call_command
    from django.test.utils import override_settings
    from django.urls import path

    from retrysafe.django.settings import close_guards
    from tests.django.shop.models import Order

    call_command("migrate", run_syncdb=True, verbosity=0)
    with told("docs/drf.md", tmp_path) as found:
        names = found.names
        urls: Any = ModuleType("urls")
        urls.urlpatterns = [
            *names["urlpatterns"],
            path("refunds/", names["Refunds"].as_view()),
            path("ship/<int:pk>/", names["Shipments"].as_view({"post": "ship"})),
            path("pay/", names["pay"]),
            path("checkout/", names["Checkout"].as_view()),
            path("ninja/", names["api"].urls),
        ]
        with override_settings(RETRYSAFE={}, ROOT_URLCONF=urls):
            yield found
        close_guards()
        from django.contrib.auth.models import User

        empty(Order, User)


def _post(url: str, body: dict[str, Any], key: str = "my-order", **headers: str) -> Any:
    from rest_framework.test import APIClient

    client: Any = APIClient(raise_request_exception=False)
    return client.post(
        url, body, format="json", headers={"Idempotency-Key": key, "Authorization": "Bearer ann", **headers}
    )


@pytest.mark.parametrize("url", ["/api/orders/", "/refunds/", "/ship/{}/", "/pay/", "/checkout/"])
def test_its_views(story: Story, url: str) -> None:
    """Each runs once, and its retry is a replay."""
    from tests.django.shop.models import Order

    url = url.format(Order.objects.create(label="there").pk)
    first, again = (_post(url, {"label": "bread"}) for _ in range(2))
    assert first.status_code in (201, 202), first.content
    assert (first.status_code, first.content) == (again.status_code, again.content)
    assert again.headers["Idempotent-Replayed"] == "true"


def test_its_operation(story: Story) -> None:
    """Of ninja's, with a session."""
    from django.contrib.auth.models import User
    from django.test import Client

    client = Client()
    client.force_login(User.objects.create_user("ann"))
    first, again = (
        client.post(
            "/ninja/orders",
            {"label": "bread"},
            content_type="application/json",
            headers={"Idempotency-Key": "k1"},
        )
        for _ in range(2)
    )
    assert (first.status_code, first.content) == (201, again.content)
    assert first.json()["label"] == "bread"
    assert again.headers["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize("url", ["/api/orders/", "/checkout/"])
def test_a_body_that_is_corrected(story: Story, url: str) -> None:
    """Its key is free, whether the refusal was raised or returned."""
    refused = _post(url, {"label": ""})
    assert refused.status_code == 400
    done = _post(url, {"label": "bread"})
    assert done.status_code == 201
    assert "Idempotent-Replayed" not in done.headers


def test_its_envelope(story: Story) -> None:
    """Its form of a refusal, with the problem's status and headers."""
    from django.conf import settings
    from django.test.utils import override_settings
    from rest_framework.exceptions import NotFound

    assert story.names["envelope"](NotFound(), {}).data == {"error": {"detail": NotFound.default_detail}}
    module: Any = ModuleType("handlers")
    module.envelope = story.names["envelope"]
    sys.modules["handlers"] = module
    try:
        with override_settings(
            REST_FRAMEWORK={**settings.REST_FRAMEWORK, "EXCEPTION_HANDLER": "handlers.envelope"}
        ):
            _post("/pay/", {"label": "a"})
            reused = _post("/pay/", {"label": "b"})
    finally:
        del sys.modules["handlers"]
    assert reused.status_code == 422
    assert set(reused.json()) == {"error"}
    assert reused.headers["X-Should-Retry"] == "false"


def test_its_hook(story: Story) -> None:
    """drf-spectacular finds it by this name."""
    from django.utils.module_loading import import_string

    for path in story.names["SPECTACULAR_SETTINGS"]["POSTPROCESSING_HOOKS"]:
        assert callable(import_string(path))


def test_its_tests_pass(story: Story) -> None:
    case = story.names["Ordering"]
    case.databases = {"default"}
    run_case(case)
