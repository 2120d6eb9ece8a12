"""The page about jobs has every name, option, default and outcome."""

import re
from typing import get_args

import pytest

from retrysafe.callbacks import jobs
from retrysafe.callbacks.jobs import __main__, backoff, delivery, envelope, pending, request
from tests.docs.pages import page

PAGE = page("docs/jobs.md")


def row(name: str) -> str:
    """The line of a table that begins with this name, alone or with others."""
    return next((line for line in PAGE.text.splitlines() if re.match(rf"\| [^|]*`{name}`", line)), "")


@pytest.mark.parametrize("name", jobs.__all__)
def test_names(name: str) -> None:
    """In a sentence, or in code that is run."""
    code = [*PAGE.inline, *(block.text for block in PAGE.blocks)]
    assert any(re.search(rf"\b{name}\b", one) for one in code)


@pytest.mark.parametrize("name", jobs.DeliveryOptions.__annotations__)
def test_options(name: str) -> None:
    """Those of a delivery, and with them those of attempts."""
    assert name == "back_off" or row(name)
    assert f"`{name}" in PAGE.text


@pytest.mark.parametrize("name", [*jobs.Envelope.model_fields, *jobs.ExecutionContext.model_fields])
def test_fields_of_envelopes(name: str) -> None:
    assert name == "context" or row(f"{'context.' * (name != 'run_id')}{name}")


def test_defaults() -> None:
    """The page shows the numbers of the code."""
    assert f"| `horizon` | {request.HORIZON / 3600:g} h |" in PAGE.text
    assert f"Less than {request.LONGEST_HORIZON / 86400:g} days" in PAGE.text
    assert f"| `timeout` | {delivery.TIMEOUT:g} s |" in PAGE.text
    assert f"at most {envelope.LONGEST_ID} bytes" in PAGE.text
    default = backoff.BackOff()
    assert f"back_off=BackOff(first={default.first}, longest={default.longest})" in PAGE.inline
    assert f"{default.first:g} s at first, doubles and ends at {default.longest / 60:g} minutes" in PAGE.text


@pytest.mark.parametrize("outcome", get_args(pending.Outcome))
def test_outcomes(outcome: str) -> None:
    assert row(outcome)


@pytest.mark.parametrize("where", ["refused", "expired", "damaged"])
def test_folders(where: str) -> None:
    assert f"`{where}/`" in PAGE.text


def test_the_command() -> None:
    """Its options, and what it reads from the environment; the command of the page is one that it takes."""
    help_ = __main__.parser().format_help()
    for option in {*re.findall(r"--[a-z]+", help_), *re.findall("RETRYSAFE_[A-Z_]+", help_)} - {"--help"}:
        assert option in PAGE.text
    [command] = re.findall(r"^python -m retrysafe\.callbacks\.jobs (.+)$", PAGE.text, re.M)
    assert __main__.parser().parse_args(command.split()).patience == "10m"


def test_the_logger() -> None:
    assert "`retrysafe.callbacks.jobs`" in PAGE.text
