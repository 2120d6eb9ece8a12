"""`retrysafe skill`, and how applications are named on the command line."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from retrysafe import Guard, profiles, scopes
from retrysafe._core.model import Request
from retrysafe._core.problems import CATALOGUE
from retrysafe._http.specification import document, possible_problems
from retrysafe._http.specification_markdown import markdown
from retrysafe.cli import app
from tests.cli.terminal import Run, environment, run, shown

Skill = Callable[..., Run]

SHOP = """
print("imported")
from retrysafe import Guard, asgi, scopes, wsgi
from retrysafe.fastapi import idempotent, protect
from retrysafe.starlette import protect as protect_starlette
from retrysafe.flask import Retrysafe
from retrysafe.flask import idempotent as idempotent_view
from fastapi import FastAPI
from flask import Flask
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware

guard = Guard("sqlite:///never-made.db", scope=scopes.header("X-Tenant"), profile="erp")
app = FastAPI()
protect(app, guard)

@app.post("/orders", status_code=201)
@idempotent(guard, required=True)
def create() -> None: ...

@app.put("/orders/{order_id}")
@idempotent(guard)
def change(order_id: str) -> None: ...

async def plain(scope, receive, send): ...
def wsgi_plain(environ, start_response): return []

middleware = asgi.Middleware(plain, guard, paths=["/api/*"], routes={"/api/pay": {"required": True}})
wsgi_middleware = wsgi.Middleware(wsgi_plain, guard, paths=["/wsgi"])
around = CORSMiddleware(middleware)
added = Starlette()
added.add_middleware(asgi.Middleware, guard=guard, paths=["/added"])

class Framework:  # as Flask has it
    wsgi_app = wsgi_middleware

framework = Framework()

flasks = Flask("shop")
Retrysafe(guard).init_app(flasks)
flasks.post("/views")(idempotent_view(lambda: "ran"))
twice = asgi.Middleware(asgi.Middleware(plain, guard, paths=["/inner"]), guard, paths=["/outer"])
unguarded = FastAPI()

def create_app(): return app
def needs_settings(settings): ...
def stops(): raise SystemExit("no configuration")

class Broken:
    def build_middleware_stack(self): raise RuntimeError("no settings")

broken = Broken()
loop = Framework()
loop.app = loop
"""


TOOLS = """
from retrysafe import Guard, scopes
from retrysafe.operations.mcp import idempotent

guard = Guard("sqlite:///never-made.db", scope=scopes.service("billing"))
charges = idempotent(guard, key="idempotency_key", required=True)
"""

CONTROL = """
from retrysafe import Guard, scopes
from retrysafe.operations.dbos import WorkflowControl

guard = Guard("sqlite:///never-made.db", scope=scopes.service("reports"), profile="workflow-control")
control = WorkflowControl(guard)
holding = WorkflowControl(guard, abandoned="hold")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    found = tmp_path_factory.mktemp("applications")
    (found / "shop.py").write_text(SHOP, encoding="utf-8")
    (found / "billing.py").write_text(TOOLS, encoding="utf-8")
    (found / "reports.py").write_text(CONTROL, encoding="utf-8")
    (found / "raises.py").write_text("raise RuntimeError('no \\x1b[31msettings')", encoding="utf-8")
    (found / "package").mkdir()
    (found / "package" / "main.py").write_text("from shop import app", encoding="utf-8")
    yield found
    for module in ("shop", "billing", "reports", "package", "package.main"):
        sys.modules.pop(module, None)


@pytest.fixture
def skill(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Skill:
    """In this process, in that folder: to import a framework takes longer than all of the rest."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def skill(*arguments: str) -> Run:
        monkeypatch.setattr(sys, "argv", ["retrysafe", "skill", *arguments])
        code = app.run()
        out, err = capsys.readouterr()
        return Run(code, out, err)

    return skill


def parts(text: str) -> tuple[dict[str, str], str]:
    """The front matter, as agents read it, and the text."""
    _, head, body = text.split("---\n", 2)
    return yaml.safe_load(head), body.strip()


# --- what it prints


def test_the_defaults() -> None:
    """Without an application: what the library does if it is told nothing."""
    done = run("skill")
    assert (done.code, done.err) == (0, "")
    head, body = parts(done.out)
    assert head.keys() == {"name", "description"}
    assert head["name"] == "safe-retries"
    assert "`Idempotency-Key`" in body
    assert "may have a key." in body


@pytest.mark.parametrize("profile", profiles.PROFILES)
def test_profiles(profile: str) -> None:
    """By its name: its header, its methods, and a row for each problem that it may send, with its status."""
    done = run("skill", "--profile", profile)
    assert (done.code, done.err) == (0, "")
    head, body = parts(done.out)
    wire = profiles.wire(profile)
    assert 0 < len(head["description"]) <= 1024
    assert f"`{wire.key_header}`" in body
    guard = Guard("memory:", scope=scopes.user, profile=profile)
    for code in CATALOGUE:
        row = f"| {wire.status(code)} | `{code}` |"
        assert (row in body) is (code in possible_problems(guard.rules)), code


def test_it_is_what_the_service_publishes() -> None:
    """The same text as `GET /idempotency` has for `Accept: text/markdown`, below another head."""
    _, body = parts(run("skill", "--profile", "erp", "--url", "https://erp.test").out)
    published = Guard("memory:", scope=scopes.user, profile="erp").routes(None, None).published()
    request = Request("GET", "/idempotency", b"", ((b"host", b"erp.test"),), "https")
    assert body == markdown(document(published, request)).strip()


def test_names_and_addresses() -> None:
    """They are where agents look for them."""
    done = run("skill", "--name", "shop-retries-2", "--url", "https://api.shop.test:8443/v1/")
    head, body = parts(done.out)
    assert head["name"] == "shop-retries-2"
    assert "https://api.shop.test:8443/v1" in head["description"]
    assert "curl -X POST https://api.shop.test:8443/v1/PATH" in body
    assert "published at https://api.shop.test:8443/v1/idempotency" in body


def test_a_terminal_gets_the_same() -> None:
    """It is a file, wherever it is printed."""
    assert "# Retrying safely" in shown("skill").text


@pytest.mark.parametrize(
    ("target", "rows"),
    [
        ("shop:app", ["| POST | `/orders` | required |", "| PUT | `/orders/{order_id}` | optional |"]),
        ("package.main:app", ["| POST | `/orders` | required |"]),
        ("shop:middleware", ["`/api/pay` | required |", "`/api/*` | optional |"]),
        ("shop:wsgi_middleware", ["`/wsgi` | optional |"]),
        ("shop:around", ["`/api/pay` | required |"]),
        ("shop:added", ["`/added` | optional |"]),
        ("shop:framework", ["`/wsgi` | optional |"]),
        ("shop:flasks", ["`/views` | optional |"]),
        ("shop:Framework.wsgi_app", ["`/wsgi` | optional |"]),
        ("shop:guard", ["A POST, PUT or PATCH request to any path may have a key."]),
    ],
)
def test_applications(skill: Skill, target: str, rows: list[str]) -> None:
    """Protected ones, middlewares around and inside of applications, and guards; by their own profile."""
    done = skill(target)
    assert done.code == 0
    assert all(row in done.out for row in rows)
    assert "`X-Idempotent-Replayed`" in done.out


def test_the_folder_of_the_application(folder: Path) -> None:
    """It need not be on Python's path.  What an application prints is not in the file; nothing is made."""
    done = subprocess.run(
        [Path(sys.executable).parent / "retrysafe", "skill", "package.main:app"],
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment(None),
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "imported\n")
    assert done.stdout.startswith("---\n")
    assert "| POST | `/orders` | required |" in done.stdout
    assert not (folder / "never-made.db").exists()


def test_a_factory(skill: Skill) -> None:
    """As servers have it."""
    done = skill("shop:create_app", "--factory")
    assert done.code == 0
    assert "`/orders` | required |" in done.out


def test_several_guards(skill: Skill) -> None:
    """The outermost is the one that serves the page; that there are others is said."""
    done = skill("shop:twice")
    assert done.code == 0
    assert "`/outer`" in done.out
    assert "`/inner`" not in done.out
    assert "2 guards" in done.err


def test_tools_that_agents_call(skill: Skill) -> None:
    """What a server's tools say of themselves, with the head by which agents find it."""
    done = skill("billing:charges", "--name", "billing")
    assert (done.code, done.err) == (0, "")
    head, body = parts(done.out)
    assert head["name"] == "billing"
    assert head["description"].startswith("How to make calls with a key, so that")
    assert "pass it in the argument idempotency_key" in body
    assert (
        "https://api.example"
        in parts(skill("billing:charges", "--url", "https://api.example").out)[0]["description"]
    )


def test_the_control_of_workflows(skill: Skill) -> None:
    """The text that its own `GET /idempotency` has."""
    done = skill("reports:control")
    assert (done.code, done.err) == (0, "")
    head, body = parts(done.out)
    assert head["name"] == "safe-retries"
    assert "cancel, resume, fork or start a workflow take a key" in body
    assert "retries get `outcome-unknown`" not in body
    assert "in_progress, succeeded, failed" in body
    assert "retries get `outcome-unknown`" in skill("reports:holding").out


# --- what it refuses


@pytest.mark.parametrize(
    ("arguments", "found", "advice"),
    [
        # How applications are loaded is tested with `retrysafe routes`.
        (["nowhere:app"], "there is no module nowhere", "where nowhere can be imported"),
        (["shop:nothing"], "shop has no attribute nothing", "shop:app"),
        (["raises:app"], "cannot be imported: RuntimeError: no \\x1b[31msettings", "line 1"),
        (["shop:plain"], "shop:plain has no guard: it is function", "protect()"),
        (["shop:unguarded"], "shop:unguarded has no guard: it is FastAPI", "protect()"),
        (["shop:loop"], "shop:loop has no guard", "protect()"),
        (["shop:broken"], "cannot be built: RuntimeError: no settings", "myapp:guard"),
        (["shop:needs_settings", "--factory"], "cannot be called without arguments", "takes none"),
        (["--factory"], "--factory was given without an application", "myapp:create_app"),
        (["shop:app", "--profile", "erp"], "both an application and --profile erp", "one of them"),
        (["--profile", "nothing"], "profile='nothing' is not a profile", "agents"),
        *(
            (["--name", name], "is not a valid name of a skill", "lower-case")
            for name in ("", "Shop", "a--b", "-a", "a-", "a b", "a: b", "a" * 65)
        ),
        *(
            (["--url", url], "is not an address of a service", "https://api.example.com")
            for url in (
                "",
                "shop.test",
                "ftp://shop.test",
                "https://",
                "https://user:secret@shop.test",
                "https://shop.test/?a=b",
                "https://shop.test/#a",
                "https://[::1",
                "https://sh op.test",
                "https://caf\xe9.test",
                "https://shop.test/" + "a" * 500,
                "javascript:alert(1)",
            )
        ),
    ],
)
def test_refusals(skill: Skill, arguments: list[str], found: str, advice: str) -> None:
    """Exit code 2; what was found, and what to do; nothing on stdout, and no traceback."""
    done = skill(*arguments)
    assert (done.code, done.out) == (2, "")
    assert found in done.err
    assert advice in done.err
    assert len(done.err.removeprefix("imported\n").splitlines()) <= 2
    assert "Traceback" not in done.err


def test_help_loads_no_framework() -> None:
    """Nor what renders: completion and help are used far more often."""
    code = (
        "import sys; sys.argv = ['retrysafe', 'skill', '--help']\n"
        "from retrysafe.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "late = ('asyncio', 'starlette', 'retrysafe.asgi', 'retrysafe._http.specification')\n"
        "print([name for name in late if name in sys.modules])"
    )
    assert run(command=[sys.executable, "-c", code]).out.splitlines()[-1] == "[]"


def test_descriptions_are_yaml() -> None:
    """Whatever an address has in it, the head is read as it was meant."""
    for url in ("https://shop.test/a%22b%23c", "https://shop.test/it%27s"):
        head, _ = parts(run("skill", "--url", url).out)
        assert url in head["description"]
        assert json.loads(json.dumps(head)) == head


def test_the_readers_of_a_skill_find_every_rule() -> None:
    """A key per action, the same on retries, a new one for a new intent; when; and for how long."""
    text = re.sub(r"\s+", " ", run("skill").out)
    for rule in (
        "one key, such as a UUID, for each action that you intend",
        "send exactly the same request again, with the same key",
        "a new key for a new intent",
        "stored for 24 hours",
    ):
        assert rule in text
