"""`retrysafe routes`."""

import json
from pathlib import Path

import pytest

from retrysafe import Guard, scopes
from retrysafe.cli.application import guard_names
from tests.cli.terminal import Run, Screen, run

GUARD = Guard("memory:", scope=scopes.public())

SHOP = """
print("the shop is imported")

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from retrysafe import Guard, asgi, scopes
from retrysafe.coverage import exempt
from retrysafe.starlette import idempotent, protect

guard = Guard("sqlite:///keys.db", scope=scopes.header("X-Tenant"))
erp = Guard("memory:", scope=scopes.user, profile="erp")


async def order(request): ...


@exempt("a second login does no harm")
async def login(request): ...


class Nested:
    app = Starlette(routes=[Route("/orders", idempotent(guard)(order), methods=["POST"])])


def create_app():
    print("the application is made")
    app = Starlette(routes=[
        Route("/orders", idempotent(guard, required=True, effects="repeatable")(order), methods=["POST"]),
        Route("/orders/{id}", order, methods=["DELETE"]),
        Route("/items/{id}", idempotent(erp)(order), methods=["PUT"]),
        Route("/login", login, methods=["POST"]),
    ])
    protect(app, guard)
    protect(app, erp)
    return app


def needs_settings(settings): ...


def wrong():
    return 7


async def awaited():
    return app


def broken():
    raise LookupError("no settings")


async def bare(scope, receive, send): ...


app = create_app()
covered = asgi.Middleware(app, guard)
sound = asgi.Middleware(bare, guard)
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an application, as the current one."""
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_plain_lines(shop: Path) -> None:
    """One line per route, unprotected ones first; what the application prints is not among them."""
    done = run("routes", "shop:app")
    assert done.code == 0
    lines = [line.split(maxsplit=7) for line in done.out.splitlines()]
    assert lines[:5] == [
        ["METHOD", "PATH", "STATE", "BY", "EFFECTS", "GUARD", "PROFILE", "SCOPE OR REASON"],
        ["DELETE", "/orders/{id}", "unprotected", "-", "-", "-", "-",
         "no decorator and no middleware protects it"],
        ["POST", "/orders", "required", "@idempotent", "repeatable", "shop.guard", "-",
         "the header X-Tenant"],
        ["PUT", "/items/{id}", "optional", "@idempotent", "outside", "shop.erp", "erp",
         'the authenticated user (request.user, scope["user"] or REMOTE_USER)'],
        ["POST", "/login", "exempt", "-", "-", "-", "-", "a second login does no harm"],
    ]  # fmt: skip
    assert done.out.splitlines()[-1] == "4 mutating routes: 1 unprotected, 1 exempt, 1 optional, 1 required."
    assert "the shop is imported" in done.err
    assert not (shop / "keys.db").exists()


def test_names_of_guards() -> None:
    """The variable of a module, which operators know; a number for what is in none."""
    local = Guard("memory:", scope=scopes.public())
    assert list(guard_names([GUARD, local]).values()) == [f"{__name__}.GUARD", "guard-2"]


@pytest.mark.parametrize("columns", [80, 140])
def test_on_a_terminal(shop: Path, columns: int) -> None:
    """Within the width; a note is marked as one."""
    screen = Screen("routes", "shop:app", columns=columns)
    assert screen.end() == 0
    assert max(map(len, screen.lines)) <= columns
    assert "·  authentication" in screen.text
    assert "unprotected" in screen.text


def test_json(shop: Path) -> None:
    """One document, with all that is known of a route."""
    done = run("routes", "shop:create_app", "--factory", "--json")
    document = json.loads(done.out)
    assert (document["app"], document["ok"]) == ("shop:create_app", False)
    assert (document["protected"], document["exempt"], document["unprotected"]) == (2, 1, 1)
    assert document["routes"][0] == {
        "method": "POST",
        "path": "/orders",
        "host": None,
        "endpoint": "shop.order",
        "state": "required",
        "by": "@idempotent",
        "guard": "shop.guard",
        "profile": None,
        "effects": "repeatable",
        "scope": "the header X-Tenant",
        "remark": None,
        "exempt": None,
    }
    assert document["routes"][1]["remark"] == "no decorator and no middleware protects it"
    (finding,) = document["findings"]
    assert set(finding) == {"check", "level", "found", "advice", "routes"}
    assert (finding["check"], finding["level"], finding["routes"]) == (
        "authentication",
        "note",
        ["PUT /items/{id}"],
    )


def test_in_ci(shop: Path) -> None:
    """Exit code 1 names the routes; an exemption makes it 0, and one that is not needed is said."""
    done = run("routes", "shop:app", "--fail-unprotected")
    assert done.code == 1
    assert "retrysafe: 1 mutating route is not protected: DELETE /orders/{id}\n" in done.err
    assert "DELETE" in done.out
    for exemption in ("/orders/{id}", "/orders/*", "DELETE /orders/{id}"):
        assert run("routes", "shop:app", "--fail-unprotected", "--except", exemption).code == 0
    arguments = ["shop:app", "--except", "/orders/{id}", "--except", "/logn"]
    assert "'/logn' exempts no route" in run("routes", *arguments).out
    assert run("routes", *arguments).code == 0
    done = run("routes", *arguments, "--json", "--fail-unprotected")
    assert (done.code, json.loads(done.out)["ok"]) == (1, False)
    assert "'/logn' exempts no route: there is no unprotected one of that path. Correct it" in done.err


def test_what_does_not_work_fails(shop: Path) -> None:
    """A decorator whose application is not protected is a problem, which CI must not pass over."""
    done = run("routes", "shop:Nested.app", "--fail-unprotected")
    assert done.code == 1
    assert "✗  protect" in done.out
    assert "Call protect(app, guard)" in done.err
    assert run("routes", "shop:Nested.app", "--fail-unprotected", "--except", "/orders").code == 1


def test_wrapped(shop: Path) -> None:
    """An application behind a middleware, with routes and without."""
    assert run("routes", "shop:covered", "--fail-unprotected").code == 0
    done = run("routes", "shop:sound", "--fail-unprotected")
    assert done.code == 0
    assert [line.split()[:3] for line in done.out.splitlines()[1:5]] == [
        [method, "/*", "optional"] for method in ("POST", "PUT", "PATCH", "DELETE")
    ]


def test_nothing_to_list(shop: Path) -> None:
    (shop / "empty.py").write_text("from starlette.applications import Starlette\napp = Starlette()\n")
    assert run("routes", "empty:app") == Run(0, "No mutating routes.\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["shop"], "'shop' does not name an application"),
        ([":app"], "':app' does not name an application"),
        (["shop.py:app"], "as servers take them: shop.main:app"),
        (["nowhere:app"], "there is no module nowhere"),
        (["shop.deep:app"], "there is no module shop.deep"),
        (["shop:nothing"], "shop has no attribute nothing"),
        (["shop:app.nothing"], "shop has no attribute app.nothing"),
        (["shop:guard"], "shop:guard is a retrysafe.guard.Guard, which is not an application"),
        (["shop:Starlette"], "shop:Starlette is a type, which is not an application"),
        (["shop:create_app"], "add --factory"),
        (["shop:needs_settings", "--factory"], "shop:needs_settings cannot be called without arguments"),
        (["shop:wrong", "--factory"], "shop:wrong returned a int, which is not an application"),
        (["shop:awaited", "--factory"], "shop:awaited returned a coroutine, which is not an application"),
        (["shop:broken", "--factory"], "shop:broken failed: LookupError: no settings ("),
        (["shop:app", "--except", "login"], "'login' is not a valid exemption"),
        (["raises:app"], "raises cannot be imported: ZeroDivisionError: division by zero ("),
        (["imports:app"], "imports cannot be imported: ModuleNotFoundError: No module named 'nowhere' ("),
        (["exits:app"], "exits cannot be imported: SystemExit: 3 ("),
        (["syntax:app"], "syntax cannot be imported: SyntaxError: "),
        (["middleware:app"], "add_middleware(Middleware, guard=guard)"),
    ],
)
def test_what_cannot_be_examined(shop: Path, arguments: list[str], said: str) -> None:
    """Wrong usage, with what was found and what to do; never a traceback."""
    for name, text in {
        "raises": "def deep():\n    1 / 0\n\n\ndeep()\n",
        "imports": "import nowhere\n",
        "exits": "raise SystemExit(3)\n",
        "syntax": "def (:\n",
        "middleware": "from starlette.applications import Starlette\nfrom retrysafe import asgi\n"
        "app = Starlette()\napp.add_middleware(asgi.Middleware)\n",
    }.items():
        (shop / f"{name}.py").write_text(text)
    done = run("routes", *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err
    assert "Warning" not in done.err


def test_where_it_failed(shop: Path) -> None:
    """The line of the application's own code, however deep the error was raised."""
    (shop / "deep.py").write_text("import json\n\njson.loads('{')\n")
    assert f"({shop}/deep.py, line 3)" in run("routes", "deep:app").err


def test_hostile_names(shop: Path) -> None:
    """What an application calls its routes cannot steer a terminal."""
    (shop / "hostile.py").write_text(
        "from starlette.applications import Starlette\nfrom starlette.routing import Route\n"
        "async def f(request): ...\n"
        "app = Starlette(routes=[Route('/\\x1b[2J[bold]', f, methods=['POST'])])\n"
    )
    done = run("routes", "hostile:app", "--fail-unprotected")
    assert "\x1b" not in done.out + done.err
    assert r"/\x1b[2J[bold]" in done.out
