"""Whatever a user can name is documented: options, problems, verdicts, headers, scopes, public names."""

from pathlib import Path
from typing import get_args

import pytest

import retrysafe
from retrysafe import attempt, scopes, verdicts
from retrysafe.policy import Options, Policy, RequestRules, Wire
from retrysafe.problems import CATALOGUE, Code

ROOT = Path(__file__).parents[2]
OPTIONS = (ROOT / "docs/options.md").read_text(encoding="utf-8")
PROBLEMS = (ROOT / "docs/problems.md").read_text(encoding="utf-8")


def row(text: str, name: str) -> str:
    """The line of a table that begins with this name."""
    return next((line for line in text.splitlines() if line.startswith(f"| `{name}`")), "")


@pytest.mark.parametrize("name", Options.__annotations__)
def test_options(name: str) -> None:
    """Every option has a row of its own, or a table where there is more to say."""
    assert row(OPTIONS, name) or f"| `{name}` | means" in OPTIONS


@pytest.mark.parametrize("name", ["store", "secret", "grace", "on_event", "wire"])
def test_what_a_guard_takes(name: str) -> None:
    """What only a guard takes has a row, too."""
    assert row(OPTIONS, name)


@pytest.mark.parametrize("code", get_args(Code))
def test_problems(code: Code) -> None:
    """Every problem has a row with its status, and says whether to retry as the catalogue does."""
    cells = [cell.strip() for cell in row(PROBLEMS, code).split("|")]
    assert cells[2:4] == [str(CATALOGUE[code].status), "yes" if CATALOGUE[code].retry else "no"]


@pytest.mark.parametrize("verdict", [*get_args(get_args(verdicts.Verdict)[-1]), "keyless"])
def test_verdicts(verdict: str) -> None:
    """Every verdict that an observer may count has a row."""
    assert row(PROBLEMS, verdict)


@pytest.mark.parametrize("field", [name for name in Wire._fields if name.endswith("_header")])
def test_headers(field: str) -> None:
    """Every header that is sent or read has a row."""
    assert f"| `{Wire._field_defaults[field]}" in PROBLEMS


@pytest.mark.parametrize("name", ["header", "user", "credentials", "public", "first_of", "all_of"])
def test_scopes(name: str) -> None:
    """Every scope that comes ready-made is in the table."""
    assert hasattr(scopes, name)
    assert f"`scopes.{name}" in OPTIONS


@pytest.mark.parametrize("name", [name for name in vars(attempt.Attempt) if not name.startswith("_")])
def test_what_a_handler_sees(name: str) -> None:
    """Every public part of the running attempt is documented, but for what only the engine looks at."""
    inner = {"checkpointed", "claim", "derived", "lease_ends", "leased", "said_not_started"}
    assert name in inner or f"current().{name}" in OPTIONS or f"`.{name}`" in OPTIONS


@pytest.mark.parametrize(
    ("option", "shown"),
    [("retention", "24 h"), ("lease", "30 s"), ("wait_for", "10 s"), ("unknown_retention", "30 days"),
     ("max_request", "100 MiB"), ("max_response", "1 MiB")],
)  # fmt: skip
def test_defaults(option: str, shown: str) -> None:
    """The defaults that the table shows are those of the code."""
    number, unit = shown.split()
    size = {"s": 1, "h": 3600, "days": 86400, "MiB": 1024 * 1024}[unit]
    default = {**Policy._field_defaults, **RequestRules._field_defaults}[option]
    assert default == int(number) * size
    assert f"| `{option}` | {shown} |" in OPTIONS


def test_public_names() -> None:
    """What the package exports exists, and nothing is exported by accident."""
    assert [name for name in retrysafe.__all__ if not hasattr(retrysafe, name)] == []
