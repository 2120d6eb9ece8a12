"""Which module may import which, and what no module may do, read from the source.

Imports are collected wherever they stand: inside functions, under `TYPE_CHECKING`, behind a `try`.
A layer that is crossed lazily, or only for a type, is crossed.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src"
ROOT = "retrysafe"

# Who may import whom: a room, and the rooms or modules of the package that it may know.  Modules at the root
# that hold values only are listed by name; `guard` puts everything together and may know all of it.
VALUES = frozenset({"errors", "policy", "scopes"})
# Of the runtime, what knows nothing of calls and stores: forks, threads, sockets and the log of a process.
PROCESS = frozenset({"_runtime.fork", "_runtime.log", "_runtime.threads", "_runtime.watchdog"})

MAY_IMPORT = {
    "errors": frozenset[str](),
    "scopes": frozenset({"_core", "errors"}),
    "policy": frozenset({"_core", "errors", "scopes"}),
    "profiles": frozenset({"_core", "errors", "policy", "scopes"}),
    "refusals": frozenset({"_core", "errors", "policy"}),
    "_core": frozenset({"_core"}) | VALUES,
    "_http": frozenset({"_core", "_http", "events"}) | VALUES,
    "events": frozenset({"_core", "_http", "_runtime.log"}) | VALUES,
    "stores": frozenset({"_core", "stores", "errors"}) | PROCESS,
    # On connections that Django opens, and without knowing its requests.
    "stores.sql.django": frozenset({"_core", "errors", "stores"}),
    "_runtime": frozenset({"_core", "_http", "_runtime", "events", "stores.contract"}) | VALUES,
    "asgi": frozenset({"_core", "_http", "_runtime", "asgi", "events", "guard"}) | VALUES,
    "wsgi": frozenset({"_core", "_http", "_runtime", "wsgi", "events", "guard"}) | VALUES,
    "starlette": frozenset({"_core", "_http", "asgi", "guard"}) | VALUES,
    "fastapi": frozenset({"_http", "guard", "starlette"}) | VALUES,
    "flask": frozenset({"_core", "_http", "wsgi", "guard", "sqlalchemy", "stores"}) | VALUES,
    # Models are told about tools, and clients about a control API, in the words of the specification.
    "operations": frozenset({"_core", "_http", "_runtime", "events", "guard", "operations", "refusals"})
    | VALUES,
    # Events are compared and read as the arguments and values of operations are.
    "callbacks": frozenset({"_core", "_http", "_runtime", "callbacks", "events", "guard", "refusals"})
    | frozenset({"operations.arguments", "operations.values", "stores.admin", "stores.contract"})
    | VALUES,
    # What it has to do with servers and frameworks is apart from the rest.
    "callbacks.http": frozenset({"_core", "_http", "asgi", "callbacks", "flask", "starlette", "wsgi"})
    | frozenset({"django", "stores.sql.django"})
    | VALUES,
    # What a sender of webhooks is can be known without anything that receives.
    "callbacks.webhooks": frozenset({"_core", "callbacks.webhooks", "errors"}),
    # A job needs nothing of the service that it calls back.
    "callbacks.jobs": frozenset({"_core", "callbacks.jobs", "callbacks.webhooks", "errors"}) | PROCESS,
    # Django keeps the records in its own database, and has its own settings.
    "django": frozenset(
        {"_core", "_http", "_runtime", "asgi", "django", "events", "guard", "profiles", "wsgi"}
    )
    | frozenset({"cli.format", "stores"})
    | VALUES,
    # What operators see of records is shown in the words of the command line, which loads nothing that draws.
    "django.admin": frozenset({"_core", "cli", "django", "errors", "policy", "stores"}),
    # They say of a project what the audit says of any application.
    "django.checks": frozenset({"_http", "coverage", "django", "guard", "stores"}) | VALUES,
    "django.management": frozenset({"_core", "cli", "coverage", "django", "errors", "scopes", "stores"}),
    "coverage": frozenset({"_http", "asgi", "coverage", "fastapi", "flask", "guard", "starlette", "wsgi"})
    | frozenset({"django"})
    | VALUES,
    "cli": frozenset({"_core", "cli", "coverage", "demo", "errors", "policy", "profiles", "stores", ""})
    # `skill` looks for guards in an application, and renders what they publish.
    | frozenset({"_http", "asgi", "guard", "scopes", "wsgi"})
    # `work` calls the handlers of receipts, `show` reads stored payloads.
    | frozenset({"callbacks"}),
}

# Pure: they compute, and touch no clock, socket, file or thread of control.
PURE = ("_core", "_http", "profiles", *sorted(VALUES))

# No driver and no framework.  Whatever else is not in the standard library is refused.
CORE_THIRD_PARTY = frozenset({"http_sf"})

# The parts of the standard library that do I/O or schedule.
DRIVERS = frozenset(
    "asyncio concurrent http.client http.server multiprocessing select selectors socket "
    "socketserver sqlite3 ssl subprocess urllib.request wsgiref".split()
)

# Each of them runs, or can be talked into running, what it is given to read.
UNSAFE_MODULES = frozenset("cloudpickle dill joblib jsonpickle marshal pickle shelve yaml".split())
UNSAFE_CALLS = frozenset({"eval", "exec", "__import__"})


def module_name(file: Path, src: Path = SRC) -> str:
    parts = file.relative_to(src).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(file): file for file in sorted((SRC / ROOT).rglob("*.py"))}


def below(name: str, *prefixes: str) -> bool:
    """Whether a dotted name is one of these modules or inside one."""
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def imports(tree: ast.AST, module: str, *, package: bool) -> Iterator[tuple[int, str]]:
    """Every imported name, absolute, with its line.

    `from a import b` gives `a.b`, because `b` may be a module; where it is not, `a.b` is still
    below `a`.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                kept = parts[: len(parts) - node.level + package]
                base = ".".join([*kept, base] if base else kept)
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def imports_of(module: str) -> list[tuple[int, str]]:
    file = MODULES[module]
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    return list(imports(tree, module, package=file.name == "__init__.py"))


def members(*names: str) -> list[str]:
    """The modules of the package with these names, and whatever is inside them."""
    return [module for module in MODULES if below(module, *(f"{ROOT}.{name}" for name in names))]


def own(name: str) -> str | None:
    """`_core.keys` for `retrysafe._core.keys.parse`, empty for the package, `None` for what is not ours."""
    if name == ROOT:
        return ""
    if not name.startswith(ROOT + "."):
        return None
    while name != ROOT and name not in MODULES:
        name = name.rpartition(".")[0]
    return name.removeprefix(ROOT).removeprefix(".")


def is_driver(name: str) -> bool:
    if below(name, *DRIVERS):
        return True
    top = name.split(".")[0]
    return top != ROOT and top not in sys.stdlib_module_names and top not in CORE_THIRD_PARTY


def dangers(source: str, module: str = "retrysafe.sample") -> list[str]:
    """What a source text does that could run data as code."""
    tree = ast.parse(source)
    found = [
        f"{module}:{line} imports {name}"
        for line, name in imports(tree, module, package=False)
        if below(name, *UNSAFE_MODULES)
    ]
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) if name in UNSAFE_CALLS:
                found.append(f"{module}:{node.lineno} uses {name}")
            case ast.Attribute(value=ast.Name(id="builtins"), attr=name) if name in UNSAFE_CALLS:
                found.append(f"{module}:{node.lineno} uses {name}")
            case ast.Call(func=ast.Name(id="import_module") | ast.Attribute(attr="import_module")):
                match node.args:
                    case [ast.Constant(value=str(name)), *_] if not below(name, *UNSAFE_MODULES):
                        pass
                    case _:
                        found.append(f"{module}:{node.lineno} imports a module by a computed name")
            case _:
                pass
    return found


def test_the_layers_name_modules_that_exist() -> None:
    """A renamed module does not slip out of its contract: every name in the rules is a real one."""
    named = frozenset(MAY_IMPORT).union(*MAY_IMPORT.values()) - {""}
    assert [name for name in sorted(named) if not members(name)] == []


def test_every_folder_and_module_has_a_rule() -> None:
    """A new room says what it may know; what joins transactions or is run may know the whole package."""
    free = {"", "__main__", "demo", "guard", "psycopg", "pymysql", "sqlalchemy", "sqlite3", "testing"}
    rooms = {module.removeprefix(ROOT).removeprefix(".").split(".")[0] for module in MODULES}
    assert rooms - free - MAY_IMPORT.keys() == set()


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_a_room_imports_only_what_it_may(room: str) -> None:
    """The walls between rooms, wherever an import stands."""
    allowed = MAY_IMPORT[room]
    apart = [other for other in MAY_IMPORT if other.startswith(f"{room}.")]  # a room in it, with its own rule
    assert [
        f"{module}:{line} imports {name}"
        for module in members(room)
        if module not in members(*apart)
        for line, name in imports_of(module)
        if (part := own(name)) is not None and not (part in allowed or below(part, *(allowed - {""})))
    ] == []


def test_pure_rooms_import_no_driver_and_no_framework() -> None:
    """They run without an event loop, a database, a server or any package but the parser."""
    assert [
        f"{module}:{line} imports {name}"
        for module in members(*PURE)
        for line, name in imports_of(module)
        if is_driver(name)
    ] == []


def test_tools_of_one_library_do_not_need_the_other() -> None:
    """Most servers have one of them; what both share knows only the types of the protocol."""
    libraries = {"mcp": ("fastmcp",), "fastmcp": ("mcp",), "tools": ("mcp", "fastmcp")}
    assert [
        f"{module}:{line} imports {name}"
        for own_name, others in libraries.items()
        for module in members(f"operations.{own_name}")
        for line, name in imports_of(module)
        if below(name, *others)
    ] == []


KNOW_DJANGO = (
    "callbacks.http.django",
    "coverage.django",
    "django",
    "stores.sql.django",
    "testing.reference.django",
)


def test_only_what_is_of_django_imports_it() -> None:
    """Its settings must be there when it is imported, and most projects do not have it."""
    apart = members(*KNOW_DJANGO)
    assert [
        f"{module}:{line} imports {name}"
        for module in MODULES
        if module not in apart
        for line, name in imports_of(module)
        if below(name, "django", "rest_framework", "ninja", "drf_spectacular")
    ] == []


def test_the_package_does_not_know_the_tools() -> None:
    """What only maintainers run is not in the wheel, so nothing in the wheel may need it."""
    assert [
        f"{module}:{line} imports {name}"
        for module in MODULES
        for line, name in imports_of(module)
        if below(name, "tools", "tests", "benchmarks")
    ] == []


# What an operator names on the command line to have it examined is imported, as a server does.
NAMED_BY_OPERATORS = "retrysafe.cli.application"


def test_nothing_runs_data_as_code() -> None:
    """No module unpickles, evaluates, or imports a module whose name it worked out or was sent."""
    found = {module: dangers(file.read_text(encoding="utf-8"), module) for module, file in MODULES.items()}
    (named,) = found.pop(NAMED_BY_OPERATORS)
    assert named.endswith("imports a module by a computed name")
    assert [danger for every in found.values() for danger in every] == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import os, marshal as m",
        "def f():\n    from yaml import safe_load",
        "eval('1')",
        "run = exec",
        "import builtins\nbuiltins.eval('1')",
        "__import__('json')",
        "import importlib\nimportlib.import_module(name)",
        "from importlib import import_module\nimport_module(f'retrysafe.{name}')",
        "from importlib import import_module\nimport_module(name='json')",
        "from importlib import import_module\nimport_module('pickle')",
    ],
)
def test_the_search_for_dangers_finds_them(source: str) -> None:
    """The search is not blind: each of these is found, in the form people really write."""
    assert len(dangers(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import json, re\nre.compile('a')",
        "from importlib import import_module\nimport_module('retrysafe.asgi')",
        "cursor.execute('SELECT 1')",
    ],
)
def test_the_search_for_dangers_leaves_the_rest_alone(source: str) -> None:
    """Nobody has to rename a method because it resembles a danger."""
    assert dangers(source) == []


@pytest.mark.parametrize(
    ("source", "module", "package", "expected"),
    [
        ("import a.b as c", "r.m", False, "a.b"),
        ("from a import b", "r.m", False, "a.b"),
        ("from . import b", "r.m", False, "r.b"),
        ("from .b import c", "r.m", False, "r.b.c"),
        ("from . import b", "r.p", True, "r.p.b"),
        ("from .. import b", "r.p.m", False, "r.b"),
        ("from ..b import c", "r.p", True, "r.b.c"),
        ("if TYPE_CHECKING:\n    def f():\n        import a", "r.m", False, "a"),
    ],
)
def test_imports_are_resolved(source: str, module: str, package: bool, expected: str) -> None:
    """Relative imports count as what they mean, from a module and from a package alike."""
    assert [name for _, name in imports(ast.parse(source), module, package=package)] == [expected]
