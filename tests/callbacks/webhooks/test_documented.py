"""The page of webhooks says what the code does."""

import inspect
import re

import pytest

from retrysafe.callbacks import webhooks
from retrysafe.callbacks.webhooks.slack import _COMPARED as OF_SLACK
from retrysafe.callbacks.webhooks.stripe import _COMPARED as OF_STRIPE
from tests.callbacks.webhooks.deliveries import SENDERS, Sender
from tests.docs.pages import page

PAGE = page("docs/webhooks.md").text


def row(name: str) -> list[str]:
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |")]
    return [cell.strip() for cell in line.split("|")[2:-1]]


@pytest.mark.parametrize("name", [name for name in webhooks.__all__ if name.islower()])
def test_functions(name: str) -> None:
    """Each of them is used in code that runs."""
    assert f"webhooks.{name}(" in PAGE


@pytest.mark.parametrize("name", SENDERS)
def test_senders(name: str) -> None:
    """Every preset has a row with its tolerance and its horizon."""
    *_, tolerance, horizon = row(name)
    webhook = SENDERS[name].webhook
    days = f"{webhook.horizon / 86400:.0f} day"
    assert days in horizon or name == "cloudevents"
    if SENDERS[name].timestamp is not None:
        assert "300 s" in tolerance or name == "cloudevents"
    else:
        assert tolerance == "none"


@pytest.mark.parametrize(("name", "fields"), [("stripe", OF_STRIPE), ("slack", OF_SLACK)])
def test_what_is_compared(name: str, fields: tuple[str, ...]) -> None:
    assert tuple(re.findall(r"`(\w+)`", row(name)[3])) == fields


def test_arguments() -> None:
    """Of the preset that has many."""
    described = {
        name for line in PAGE.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`", line)
    }
    named = set(inspect.signature(webhooks.signed).parameters) - {"secret", "tolerance"}
    assert named <= described


@pytest.mark.parametrize("sender", [pytest.param(sender, id=name) for name, sender in SENDERS.items()])
def test_headers(sender: Sender) -> None:
    """The header with the signature is named, but for the invented one."""
    assert sender.signature in PAGE.lower() or sender.webhook.source == "signed"
