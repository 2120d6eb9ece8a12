"""The page about Django, typed as it stands: a project that is served and stopped, its tests, its table."""

import contextlib
import itertools
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import unittest
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import httpx
import pytest

from retrysafe.testing.ports import free_port
from tests.django import project
from tests.docs import commands, serving
from tests.docs.pages import Block, Page, page
from tests.docs.running import Story, told
from tests.docs.test_documented import cells

PAGE = page("docs/django.md")

MODELS = """
from django.db import models


class Order(models.Model):
    label = models.CharField(max_length=100)
"""


def block(words: str, language: str = "python") -> Block:
    """The one that has these words."""
    [found] = [one for one in PAGE.blocks if one.language == language and words in one.text]
    return found


# --- a project, from nothing


class Project(NamedTuple):
    folder: Path

    def manage(self, *arguments: str, **variables: str) -> str:
        return self.run([sys.executable, "manage.py", *arguments], **variables)

    def run(self, words: list[str], **variables: str) -> str:
        done = subprocess.run(
            words,
            cwd=self.folder,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=serving.PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextlib.contextmanager
    def serve(self, words: list[str], address: str) -> Generator["Served"]:
        """Start it, wait until it serves, and stop it as an operator does."""
        with (self.folder / "server.log").open("ab") as log:
            process = subprocess.Popen(words, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait(address, process, self.folder / "server.log")
            yield Served(address, process, self.folder)
        finally:
            process.terminate()
            process.wait(serving.PATIENCE)


class Served(NamedTuple):
    address: str
    process: "subprocess.Popen[bytes]"
    folder: Path

    def curl(self, of: Page = PAGE) -> str:
        """The page's own."""
        [command] = [one.text for one in of.blocks if one.language == "sh" and "curl" in one.text]
        command = command.replace("http://127.0.0.1:8000", self.address)
        done = subprocess.run(
            [*shlex.split(command), "-sS"],
            capture_output=True,
            text=True,
            timeout=serving.PATIENCE,
            check=True,
        )
        return done.stdout.replace("\r\n", "\n")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(serving.PATIENCE)

    @property
    def log(self) -> str:
        return (self.folder / "server.log").read_text(encoding="utf-8")


def _wait(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    begun = time.monotonic()
    while time.monotonic() - begun < serving.PATIENCE:
        assert process.poll() is None, log.read_text(encoding="utf-8")
        with contextlib.suppress(httpx.TransportError):
            httpx.get(f"{address}/idempotency")
            return
        time.sleep(0.05)
    raise AssertionError(f"it does not serve: {log.read_text(encoding='utf-8')}")


def free_address() -> tuple[str, str]:
    place = f"127.0.0.1:{free_port()}"
    return place, f"http://{place}"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """What `startproject` makes, with what the page says to type, and a model."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    folder = tmp_path_factory.mktemp("shop")
    made = Project(folder)
    made.run([sys.executable, "-m", "django", "startproject", "shop", "."])
    settings = folder / "shop" / "settings.py"
    said = block("INSTALLED_APPS +=").text + 'INSTALLED_APPS += ["orders"]\n'
    settings.write_text(settings.read_text(encoding="utf-8") + said, encoding="utf-8")
    (folder / "shop" / "urls.py").write_text(block('urlpatterns = [path("orders/"').text, encoding="utf-8")
    (folder / "shop" / "asgi.py").write_text(block("get_asgi_application").text, encoding="utf-8")
    (folder / "gunicorn.conf.py").write_text(block("def post_worker_init").text, encoding="utf-8")
    (folder / "orders").mkdir()
    for name, text in (("__init__", ""), ("models", MODELS)):
        (folder / "orders" / f"{name}.py").write_text(text, encoding="utf-8")
    made.manage("makemigrations", "orders")
    made.manage("migrate")
    assert "no issues" in made.manage("check", "--database", "default")
    return made


def test_what_is_typed_first(shop: Project) -> None:
    """The second request creates nothing, and has the response that the page shows."""
    place, address = free_address()
    with shop.serve([sys.executable, "manage.py", "runserver", place, "--noreload"], address) as served:
        first, again = served.curl(), served.curl()
    assert "Idempotent-Replayed" not in first
    shown = block("Idempotent-Replayed: true", "text").text.splitlines()
    head, _, body = again.partition("\n\n")
    got = head.splitlines()
    assert got[0] == shown[0]
    for line in shown[1 : shown.index("")]:
        pattern = re.escape(line.partition("1d6b0c6f")[0])
        assert any(re.match(pattern, one) for one in got), (line, got)
    assert body == first.partition("\n\n")[2] == shown[-1]


def _gunicorn(place: str) -> list[str]:
    [line] = commands.lines(block("gunicorn shop", "sh").text)
    return [sys.executable, "-m", "gunicorn", *shlex.split(line)[1:], "--bind", place]


def _uvicorn(place: str) -> list[str]:
    [line] = commands.lines(block("uvicorn shop", "sh").text)
    words = shlex.split(line.replace("--workers 4", "--workers 1"))[1:]
    return [sys.executable, "-m", "uvicorn", *words, "--port", place.partition(":")[2], "--lifespan", "on"]


@pytest.mark.parametrize("command", [_gunicorn, _uvicorn], ids=["gunicorn", "uvicorn"])
def test_deployed(shop: Project, command: Callable[[str], list[str]]) -> None:
    """Served by the page's command and files, a retry is a replay; and it stops without a complaint."""
    place, address = free_address()
    with shop.serve(command(place), address) as served:
        key = {"Idempotency-Key": f"of{command.__name__}", "X-Tenant": "7"}
        first, again = (httpx.post(f"{address}/orders/", data={"label": "b"}, headers=key) for _ in range(2))
        assert (first.status_code, first.content) == (201, again.content)
        assert again.headers["Idempotent-Replayed"] == "true"
        ended = served.stop()
        log = served.log
    assert ended in (0, -signal.SIGTERM), log
    assert "Traceback" not in log
    assert not re.search(r"\b(ERROR|CRITICAL)\b", log), log


def test_the_reverse(shop: Project, tmp_path: Path) -> None:
    """`migrate retrysafe zero` drops the tables, and `migrate` makes them again."""
    copy = tmp_path / "copy"
    shutil.copytree(shop.folder, copy)
    other = Project(copy)
    for command in ("python manage.py migrate retrysafe zero", "python manage.py sqlmigrate retrysafe 0001"):
        assert f"`{command}`" in PAGE.text
        assert other.manage(*command.split()[2:])
    other.manage("migrate")


# --- within this process


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    """What the page defines, in a project that has the page's views."""
    project.configure()
    from django.core.management import call_command
    from django.test.utils import override_settings

    from retrysafe.django.settings import close_guards
    from tests.django.shop.models import Order

    call_command("migrate", run_syncdb=True, verbosity=0)
    with told("docs/django.md", tmp_path) as found:
        said: dict[str, Any] = {"INSTALLED_APPS": [], "MIDDLEWARE": []}
        exec(block("INSTALLED_APPS +=").text, said)
        urls: Any = ModuleType("urls")
        urls.urlpatterns = found.names["urlpatterns"]
        with override_settings(RETRYSAFE=said["RETRYSAFE"], ROOT_URLCONF=urls):
            yield found
        close_guards()
        empty(Order)


def empty(*models: Any) -> None:
    from django.db import connection

    from retrysafe.django.models import Record

    for model in (*models, Record):
        model.objects.all().delete()
    connection.close()


@contextlib.contextmanager
def _test_environment() -> Generator[None]:
    from django.test.utils import setup_test_environment, teardown_test_environment

    setup_test_environment()
    try:
        yield
    finally:
        teardown_test_environment()


def run_case(case: type[unittest.TestCase]) -> None:
    """As Django's runner does."""
    result = unittest.TestResult()
    with _test_environment():
        unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    assert result.testsRun
    for _, error in (*result.errors, *result.failures):
        raise AssertionError(error)


@pytest.mark.parametrize("name", ["Ordering", "OrderingAtOnce"])
def test_its_tests_pass(story: Story, name: str) -> None:
    case = story.names[name]
    case.databases = {"default"}
    run_case(case)


def _post(view: Any, key: str = "my-order", **form: str) -> Any:
    """By a project whose only view is this one."""
    from django.test import Client
    from django.test.utils import override_settings
    from django.urls import path

    urls: Any = ModuleType("urls")
    urls.urlpatterns = [path("view/", view), path("view/<int:order>/", view)]
    with override_settings(ROOT_URLCONF=urls):
        client = Client(raise_request_exception=False)
        url = f"/view/{form.pop('order')}/" if "order" in form else "/view/"
        return client.post(url, form, headers={"Idempotency-Key": key, "X-Tenant": "7"})


@pytest.mark.parametrize(
    ("name", "form"),
    [("create", {"label": "a"}), ("refund", {"payment": "3"}), ("pay", {}), ("notify", {}), ("start", {})],
)
def test_its_views(story: Story, name: str, form: dict[str, str]) -> None:
    """Each runs once, and its retry is a replay."""
    first, again = (_post(story.names[name], **form) for _ in range(2))
    assert (first.status_code, first.content) == (again.status_code, again.content)
    assert first.status_code in (200, 201, 202)
    assert again.headers["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize(("name", "form"), [("Orders", {"label": "a"}), ("Deliveries", {"order": "3"})])
def test_its_classes(story: Story, name: str, form: dict[str, str]) -> None:
    view = story.names[name].as_view()
    first, again = (_post(view, **dict(form)) for _ in range(2))
    assert (first.status_code, first.content) == (201, again.content)
    assert again.headers["Idempotent-Replayed"] == "true"


def test_a_form_that_is_corrected(story: Story, tmp_path: Path) -> None:
    """The key of a form that was shown again is free."""
    from django.conf import settings
    from django.test.utils import override_settings

    (tmp_path / "refund.html").write_text("{{ form.errors }}", encoding="utf-8")
    templates = [{**settings.TEMPLATES[0], "DIRS": [str(tmp_path)]}]
    with override_settings(TEMPLATES=templates):
        shown = _post(story.names["refund"], payment="none")
    assert (shown.status_code, b"errorlist" in shown.content) == (200, True)
    done = _post(story.names["refund"], payment="3")
    assert done.json() == {"refunded": 3}
    assert "Idempotent-Replayed" not in done.headers


def test_its_scope(story: Story) -> None:
    """The names of its parts."""
    from django.test import RequestFactory

    from retrysafe.django.guarded.request import read

    request: Any = RequestFactory().post("/orders/", headers={"X-Organisation": "7"})
    rule = story.names["RETRYSAFE"]["SCOPE"]
    assert dict(rule(read(request)).parts) == {"organisation": "7", "endpoint": "/orders/"}


# --- the table of what is committed together


class Line(NamedTuple):
    """A line, as it begins; what the view does; the status; whether its row and its key are stored."""

    title: str
    does: str
    status: int
    effect: bool
    kept: bool


LINES = [
    Line("returns 2xx, 3xx or 4xx", "201", 201, True, True),
    Line("returns 2xx, 3xx or 4xx", "302", 302, True, True),
    Line("returns 2xx, 3xx or 4xx", "409", 409, True, True),
    Line("returns 401, 403, 408", "429", 429, False, False),
    Line("returns 401, 403, 408", "not started", 201, False, False),
    Line("raises `Http404`", "Http404", 404, False, True),
    Line("raises `Http404`", "BadRequest", 400, False, True),
    Line("raises `PermissionDenied`", "PermissionDenied", 403, False, False),
    Line("raises anything else", "RuntimeError", 500, False, False),
    Line("raises anything else", "500", 500, False, False),
    Line("`raise NotDone(…)`", "NotDone", 503, False, False),
    Line("`transaction.set_rollback(True)`, and returns 4xx", "set_rollback 409", 409, False, True),
    Line("… and returns 2xx", "set_rollback 201", 500, False, False),
    Line("`connection.close()`", "close", 500, False, False),
    Line("`atomic(durable=True)`", "durable", 500, False, False),
]

numbers = itertools.count()


def _rows() -> list[str]:
    table = PAGE.text.partition("| in such a view | |")[2].partition("\n\n")[0]
    return [row.removeprefix("| ") for row in table.splitlines()[2:]]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.does)
def test_line(line: Line, story: Story) -> None:
    """The row is there or not, the status is the one, the key is stored or free: as the page says."""
    from django.core.exceptions import BadRequest, PermissionDenied
    from django.db import connection, transaction
    from django.http import Http404, HttpResponse

    from retrysafe import NotDone, current
    from retrysafe.django import idempotent
    from tests.django.shop.models import Order

    raised = {one.__name__: one for one in (Http404, BadRequest, PermissionDenied, RuntimeError, NotDone)}

    def view(request: Any) -> HttpResponse:
        Order.objects.create(label="made")
        words = line.does.split()
        if line.does in raised:
            raise raised[line.does]("because")
        if words[0] == "set_rollback":
            transaction.set_rollback(True)
        elif line.does == "not started":
            current().not_started()
        elif line.does == "close":
            connection.close()
        elif line.does == "durable":
            with transaction.atomic(durable=True):
                pass
        return HttpResponse(status=int(words[-1]) if words[-1].isdigit() else 201)

    guarded: Any = idempotent(effects="database")(view)
    before = Order.objects.count()
    key = f"line-{next(numbers)}"
    first = _post(guarded, key)
    assert first.status_code == line.status
    assert (Order.objects.count() > before) == line.effect
    again = _post(guarded, key)
    assert ("Idempotent-Replayed" in again.headers) == line.kept
    said = [row for row in _rows() if row.startswith(line.title)]
    assert said, line.title
    _, what = cells(f"| {said[0]}")
    assert not line.effect or "committed" in what or "undone" not in what
    assert line.effect or "undone" in what or "RuntimeError" in what
