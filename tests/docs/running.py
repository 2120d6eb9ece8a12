"""Runs the Python of a page as it stands: its blocks in their order, in one namespace and an empty folder."""

import contextlib
import importlib
import importlib.util
import io
import re
import sys
import tempfile
from collections.abc import Generator
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from sqlalchemy import Engine

from retrysafe import Guard, scopes
from tests.docs import serving
from tests.docs.pages import Block, page

OPTIONAL = (
    "celery", "django", "drf_spectacular", "fastapi", "fastmcp", "flask", "mcp", "ninja", "opentelemetry",
    "prometheus_client", "rest_framework",
)  # fmt: skip
"""What pages show how to use, and not everybody has installed.  Blocks that need one of them are then only
compiled."""

_IMPORT = re.compile(r"^\s*(?:from|import) (\w+)", re.M)
_ADDRESS = "http://127.0.0.1:8000"


class Ran(NamedTuple):
    """What became of a block."""

    missing: str | None
    """A package that is not installed, so it was not run."""
    error: BaseException | None
    printed: str


class Story(NamedTuple):
    """A page that was run."""

    names: dict[str, Any]
    ran: dict[int, Ran]
    """By line."""


@cache
def story(name: str) -> Story:
    """Run a page.  Once: what its blocks print and define is looked at by several tests."""
    with tempfile.TemporaryDirectory() as folder, told(name, Path(folder)) as found:
        return found


@contextlib.contextmanager
def told(name: str, folder: Path) -> Generator[Story]:
    """Run a page in this folder, for as long as somebody wants to use what it has made."""
    names = setting(name)
    ran: dict[int, Ran] = {}
    found = [block for block in page(name).blocks if block.language == "python"]
    with contextlib.ExitStack() as stack:
        here = _ADDRESS
        if any(_ADDRESS in block.text for block in found):
            here = stack.enter_context(serving.quickstart(folder))
        stack.enter_context(contextlib.chdir(folder))
        stack.enter_context(_module("shop", guard=names.get("guard")))
        if importlib.util.find_spec("django") is not None:
            stack.enter_context(_project())
        for block in found:
            ran[block.line] = _run(block, block.text.replace(_ADDRESS, here), names)
        yield Story(names, ran)
        for guard in _guards(names):
            guard.close()
        for engine in [value for value in names.values() if isinstance(value, Engine)]:
            engine.dispose()


def _guards(names: dict[str, Any]) -> list[Guard]:
    held = [value.guard if type(value).__name__ == "Middleware" else value for value in names.values()]
    return [value for value in held if isinstance(value, Guard)]


def missing(block: Block) -> str | None:
    """A package that the block needs and that is not there."""
    wanted = [name for name in _IMPORT.findall(block.text) if name in OPTIONAL]
    return next((name for name in wanted if importlib.util.find_spec(name) is None), None)


def _run(block: Block, text: str, names: dict[str, Any]) -> Ran:
    code = compile("\n" * block.line + text, block.page, "exec", dont_inherit=True)
    if lacking := missing(block):
        return Ran(lacking, None, "")
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(code, names)
    except Exception as error:  # noqa: BLE001 - the test of this block raises it
        return Ran(None, error, printed.getvalue())
    return Ran(None, None, printed.getvalue())


@contextlib.contextmanager
def _module(name: str, **members: object) -> Generator[None]:
    """The reader's own application, as far as a page imports from it."""
    module = ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module
    try:
        yield
    finally:
        del sys.modules[name]


@contextlib.contextmanager
def _project() -> Generator[None]:
    """A project of the reader's, with a model of orders: the one that all tests of a process share."""
    from tests.django.project import configure

    configure()
    models = importlib.import_module("tests.django.shop.models")
    with _module("orders"), _module("orders.models", Order=models.Order):
        yield


def setting(name: str) -> dict[str, Any]:
    """What a page takes for granted: names that the reader's own application has."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    charged: list[tuple[int, str]] = []
    network = SimpleNamespace(
        charge=lambda amount, idempotency_key: charged.append((amount, idempotency_key)),
        is_up=lambda: True,
    )
    cards = SimpleNamespace(charge=lambda order, cents: f"{order} {cents}")
    starlette = {"JSONResponse": JSONResponse, "Request": Request, "Route": Route, "Starlette": Starlette}
    known: dict[str, dict[str, Any]] = {
        "README.md": {**starlette, "card_network": network, "charged": charged},
        "docs/api.md": {"card_network": network, "charged": charged},
        "docs/celery.md": {"card_network": cards},
        # What a project has before it is changed.
        "docs/django.md": {"INSTALLED_APPS": [], "MIDDLEWARE": []},
        "docs/drf.md": {"INSTALLED_APPS": [], "MIDDLEWARE": []},
        "docs/operating.md": {"guard": Guard("memory:", scope=scopes.public())},
        "docs/operations.md": {"card_network": network},
        "docs/options.md": {"app": Starlette()},
        "docs/profiles.md": {"app": Starlette()},
        "docs/procrastinate.md": {"card_network": cards},
        "docs/tasks.md": {"card_network": cards},
        "docs/transactions.md": {"card_network": network},
        "docs/twice.md": {"card_network": network, "charged": charged},
    }
    return {"__name__": "a_page", **known.get(name, {})}
