"""Whatever a user can name is documented: options, problems, headers, events, loggers, scopes, names."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import get_args

import pytest

import retrysafe
import retrysafe.coverage
import retrysafe.django
import retrysafe.django.scopes
import retrysafe.fastapi
import retrysafe.operations
import retrysafe.operations.fastmcp
import retrysafe.operations.mcp
import retrysafe.psycopg
import retrysafe.sqlalchemy
import retrysafe.sqlite3
import retrysafe.starlette
from retrysafe import asgi, profiles, scopes, stores, testing
from retrysafe._core import attempt, headers, steps
from retrysafe._core.problems import CATALOGUE, OF_CALLBACKS, Code
from retrysafe.policy import _CHOICES, Options, OutcomeRules, Policy, RequestRules, Wire
from retrysafe.stores import admin, contract
from retrysafe.testing import adapters
from retrysafe.testing import stores as store_suite
from tests.docs.pages import ROOT, page, pages

OPTIONS = page("docs/options.md").text
PROBLEMS = page("docs/problems.md").text
HEADERS = page("docs/headers.md").text
EVENTS = page("docs/events.md").text
CLIENTS = page("docs/clients.md").text
CALLBACKS = page("docs/callbacks.md").text
API = page("docs/api.md").text


def row(text: str, name: str) -> str:
    """The line of a table that begins with this name."""
    return next((line for line in text.splitlines() if line.startswith(f"| `{name}`")), "")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def sources() -> Iterator[str]:
    for file in sorted((ROOT / "src").rglob("*.py")):
        yield file.read_text(encoding="utf-8")


# --- options


@pytest.mark.parametrize("name", Options.__annotations__)
def test_options(name: str) -> None:
    """Every option has a row of its own with its reason, or a table where there is more to say."""
    if name == "effects":
        assert "| `effects` | means" in OPTIONS
    else:
        _, default, what, why = cells(row(OPTIONS, name))
        assert default
        assert what
        assert why


@pytest.mark.parametrize(
    "name", ["store", "secret", "grace", "wait_threads", "on_event", "wire", "profile", "paths", "routes"]
)
def test_what_guards_and_middlewares_take(name: str) -> None:
    """What only they take has a row, too."""
    assert row(OPTIONS, name)


@pytest.mark.parametrize("field", Wire._fields)
def test_wire(field: str) -> None:
    """Every name and limit on the wire is there, with its default."""
    default = Wire._field_defaults[field]
    _, shown, meaning = cells(row(OPTIONS, field))
    assert meaning
    if isinstance(default, frozenset):
        assert set(re.findall("[A-Z]+", shown)) == default
    elif isinstance(default, tuple):
        assert ast.literal_eval(shown.strip("`")) == default
    else:
        assert shown.strip("`") == str(default)


@pytest.mark.parametrize(
    ("option", "shown"),
    [("retention", "24 h"), ("lease", "30 s"), ("wait_for", "10 s"), ("unknown_retention", "30 days"),
     ("max_request", "100 MiB"), ("max_response", "1 MiB")],
)  # fmt: skip
def test_defaults(option: str, shown: str) -> None:
    """The defaults that the table shows are those of the code."""
    number, unit = shown.split()
    size = {"s": 1, "h": 3600, "days": 86400, "MiB": 1024 * 1024}[unit]
    default = {
        **Policy._field_defaults,
        **RequestRules._field_defaults,
        **OutcomeRules._field_defaults,
    }[option]
    assert default == int(number) * size
    assert f"| `{option}` | {shown} |" in OPTIONS


@pytest.mark.parametrize("name", _CHOICES)
def test_choices(name: str) -> None:
    """Where an option is one of several words, each of them is mentioned."""
    for choice in _CHOICES[name]:
        shown = f'"{choice}"' if isinstance(choice, str) else str(choice)
        assert f"`{shown}`" in OPTIONS


@pytest.mark.parametrize(
    "name", ["header", "user", "credentials", "argument", "public", "service", "first_of", "all_of"]
)
def test_scopes(name: str) -> None:
    """Every scope that comes ready-made is in the table, and on the page of names."""
    assert hasattr(scopes, name)
    assert f"`scopes.{name}" in OPTIONS
    assert f"`scopes.{name}" in API


def test_no_scope_is_left_out() -> None:
    """The list above is complete."""
    functions = {name for name, value in vars(scopes).items() if callable(value) and name.islower()}
    own = {name for name in functions if getattr(scopes, name).__module__ == scopes.__name__}
    assert {name for name in own if not name.startswith("_")} == {
        "header", "user", "credentials", "argument", "public", "service", "first_of", "all_of",
        "resolve", "describe",
        # what guards, the published specification and problems ask of a rule
        "bind", "missing", "headers", "shared", "always_finds", "needs_user", "check_arguments",
        # what adapters ask, whose functions are about their framework's requests
        "blocks",
        # what operations ask
        "of_service", "by_argument",
    }  # fmt: skip
    assert all(f"`scopes.{name}(" in API for name in ("resolve", "describe"))


# --- the wire


@pytest.mark.parametrize("code", get_args(Code))
def test_problems(code: Code) -> None:
    """Every problem has a row with its status and says whether to retry; and senders are told what to do."""
    found = cells(row(PROBLEMS, code))
    assert found[1:3] == [str(CATALOGUE[code].status), "yes" if CATALOGUE[code].retry else "no"]
    assert code == "handler-failed" or f"`{code}`" in (CALLBACKS if code in OF_CALLBACKS else CLIENTS)


@pytest.mark.parametrize("field", [name for name in Wire._fields if name.endswith("_header")])
def test_headers(field: str) -> None:
    """Every header that is sent or read has a row; those that are off by default, with what turns them on."""
    default = Wire._field_defaults[field]
    assert (f"| `{default}" if default else f"`Wire({field}=…)`") in HEADERS


@pytest.mark.parametrize("name", Wire._field_defaults["should_retry_headers"])
def test_headers_with_hints(name: str) -> None:
    """The table has the names that are sent."""
    assert f"| `{name.lower()}`" in HEADERS


@pytest.mark.parametrize("field", retrysafe.ProblemDetails._fields)
def test_what_an_envelope_is_given(field: str) -> None:
    """Every field of a problem has a place in the table."""
    table = PROBLEMS.partition("`render_problem` is given a `ProblemDetails`")[2]
    assert re.search(rf"^\|.*`{field}`.*\|.*\|$", table, re.M)


@pytest.mark.parametrize("name", ["Retry-After", "retry-after-ms", "x-should-retry", "Cache-Control"])
def test_headers_of_problems(name: str) -> None:
    """So have those that problems carry."""
    assert f"| `{name}" in HEADERS


@pytest.mark.parametrize(
    "name",
    [name.decode() for name in sorted(headers._DROPPED) if not name.startswith(headers._DROPPED_PREFIXES)]
    + [f"{prefix.decode()}*" for prefix in headers._DROPPED_PREFIXES]
    + [f"*{suffix.decode()}" for suffix in headers._DROPPED_SUFFIXES],
)
def test_headers_that_are_not_kept(name: str) -> None:
    """The page names every header that is dropped, itself or by a pattern; our markers are in its tables."""
    assert f"`{name}" in HEADERS.lower()


# --- events and logs


@pytest.mark.parametrize("verdict", [*get_args(get_args(steps.Verdict)[-1]), "keyless"])
def test_verdicts(verdict: str) -> None:
    """Every verdict that an observer may count has a row."""
    assert row(EVENTS, verdict)


@pytest.mark.parametrize("field", retrysafe.Event._fields)
def test_fields_of_events(field: str) -> None:
    """So has every field of an event."""
    assert row(EVENTS, f"event.{field}")


def test_loggers() -> None:
    """Every logger that the library uses has a row."""
    used = {
        name for text in sources() for name in re.findall(r'(?:getLogger|Log)\("(retrysafe[\w.]*)"\)', text)
    }
    assert len(used) >= 3
    assert {name for name in used if not row(EVENTS, name)} == set()


@cache
def logged() -> set[str]:
    """Every message that is logged at the level of warnings or above, written in place or as a constant."""
    found: set[str] = set()
    for text in sources():
        module = ast.parse(text)
        constants = {
            target.id: node.value
            for node in module.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(module):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id in ("log", "_log")
                and node.func.attr in ("warning", "error", "exception", "critical")
            ):
                said = node.args[0]
                message = constants.get(said.id) if isinstance(said, ast.Name) else said
                if isinstance(message, ast.Constant):
                    found.add(str(message.value))
    return found


def test_log_lines() -> None:
    """Somebody who finds a line in a log finds it on the page, too: its longest part without values."""
    page = re.sub(r"\s+", " ", EVENTS)
    parts = {message: re.split(r"%(?:\.\d)?[sdfr]|: ", message) for message in logged()}
    assert len(parts) > 10
    missing = {message for message, all_ in parts.items() if max(all_, key=len).strip(" :;,") not in page}
    assert missing == set()


def test_no_log_line_is_out_of_date() -> None:
    """What the page quotes is still said: its longest part without values."""
    table = EVENTS.partition("| logger |")[2]
    quoted = [code for code in re.findall("`([^`]+)`", table) if " " in code and "retrysafe" not in code]
    assert len(quoted) > 10
    said = "\n".join(logged())
    assert [code for code in quoted if max(code.split("…"), key=len).strip() not in said] == []


@pytest.mark.parametrize(
    "variable", sorted({name for text in sources() for name in re.findall(r'"(RETRYSAFE_\w+)"', text)})
)
def test_environment(variable: str) -> None:
    """Every variable that is read from the environment is named where users look."""
    assert any(f"{variable}" in pages()[name].text for name in pages() if name.startswith("docs/"))


# --- names


def test_public_names() -> None:
    """What the package exports exists, and is on the page of names."""
    for name in retrysafe.__all__:
        assert hasattr(retrysafe, name)
        assert re.search(rf"^\| `{name}\b", API, re.M), name


@pytest.mark.parametrize(
    "module",
    [
        asgi,
        stores,
        admin,
        contract,
        profiles,
        testing,
        adapters,
        store_suite,
        retrysafe.coverage,
        retrysafe.django,
        retrysafe.django.scopes,
        retrysafe.fastapi,
        retrysafe.operations,
        retrysafe.starlette,
        retrysafe.sqlalchemy,
        retrysafe.psycopg,
        retrysafe.sqlite3,
        retrysafe.operations.mcp,
        retrysafe.operations.fastmcp,
    ],
)
def test_names_of_submodules(module: object) -> None:
    """So is what its public modules export."""
    for name in module.__all__:  # type: ignore[attr-defined]  # a module that says what it exports
        assert re.search(rf"\b{name}\b", API), name


@pytest.mark.parametrize("name", [name for name in vars(retrysafe.Guard) if not name.startswith("_")])
def test_members_of_guards(name: str) -> None:
    """Every public member of a guard."""
    assert re.search(rf"\bguard\.{name}\b", API)


@pytest.mark.parametrize("name", [name for name in vars(attempt.Attempt) if not name.startswith("_")])
def test_what_a_handler_sees(name: str) -> None:
    """Every public part of the running attempt, but for what only the engine looks at."""
    inner = set(
        "callbacks checkpointed claim derived transaction lease_ends leased parts promised "
        "said_not_started".split()
    )
    assert name in inner or f"current().{name}" in OPTIONS or f"`.{name}`" in OPTIONS
    assert name in inner or row(API, f"attempt.{name}") or f"`attempt.{name}(" in API


@pytest.mark.parametrize("kind", [contract.Store, contract.Renewer, admin.Admin])
def test_contracts(kind: type) -> None:
    """What a store of one's own has to bring."""
    for name in vars(kind):
        if not name.startswith("_"):
            assert re.search(rf"`{name}\b", API), name


@pytest.mark.parametrize("name", [name for name, value in vars(admin).items() if hasattr(value, "_fields")])
def test_values_of_operators(name: str) -> None:
    """What an operator's program is given by a store, as far as it is made there."""
    if getattr(admin, name).__module__ == admin.__name__:
        assert f"`{name}`" in API


def test_targets_of_make() -> None:
    """Every command of the Makefile is in CONTRIBUTING, which is where people look for it."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z-]+):.*##", makefile, re.M)
    assert len(targets) > 8
    text = page("CONTRIBUTING.md").text
    assert [target for target in targets if f"make {target}" not in text and target != "help"] == []
