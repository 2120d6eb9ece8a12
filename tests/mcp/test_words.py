"""What models are told: about everything that can happen, and in words that a tool call has a meaning for."""

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from retrysafe import Guard, scopes
from retrysafe._core.problems import CATALOGUE, COMMON, Problem
from retrysafe.operations.mcp import idempotent
from retrysafe.operations.tool_calls import words
from retrysafe.operations.tool_calls.words import Terms
from retrysafe.refusals import refusal

OF_HTTP = re.compile(r"(?i)\b(request|response|header|Retry-After|status|\d{3}|body|operation)s?\b|[{}]")
"""What a tool call has not."""


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[Guard]:
    made = Guard(f"sqlite:///{tmp_path}/keys.db", scope=scopes.user)
    yield made
    made.close()


OPTIONS: list[dict[str, Any]] = [
    {"effects": effects, "required": required, "key": key, **more}
    for effects, required, key, more in product(
        ("outside", "repeatable", "database"),
        (True, False, "warn"),
        (None, "idempotency_key"),
        ({}, {"in_flight": "wait"}, {"store_down": "run"}),
    )
]


def test_instructions_speak_of_calls(guard: Guard) -> None:
    """Whatever the options, nothing in them is about HTTP, and each error that can happen has its line."""
    for options in OPTIONS:
        made = idempotent(guard, **options)
        text = made.instructions()
        assert OF_HTTP.search(text) is None, (options, OF_HTTP.search(text))
        assert [code for code in CATALOGUE if f"| `{code}` |" in text] == words.possible(made.terms)
        assert (options["key"] or "io.retrysafe/idempotencyKey") in text


@pytest.mark.parametrize("code", sorted({*COMMON} - {"body-too-large", "replay-forbidden"}))
def test_refusals_say_what_to_do(guard: Guard, code: Any) -> None:
    """A refusal has the words of the published specification, with calls for requests.

    Two problems are of requests alone."""
    terms = idempotent(guard, key="idempotency_key", required=True).terms
    text = words.explain(refusal(Problem(code, "The reason.", 1.01104), terms.rules, "charge"), terms)
    assert f"({code})." in text
    assert OF_HTTP.search(text) is None, text
    advice = CATALOGUE[code].advice
    if "Retry-After" in advice:
        assert text.endswith("Wait 2 seconds, then make the same call again, with the same key.")


def test_only_what_can_happen_is_listed(guard: Guard) -> None:
    """An error that the options rule out would only be in the way."""

    def possible(**options: Any) -> set[str]:
        terms: Terms = idempotent(guard, **options).terms
        return set(words.possible(terms))

    assert "key-missing" not in possible()
    assert "key-missing" in possible(required=True)
    assert "principal-required" in possible()
    assert "principal-required" not in possible(scope=scopes.service("billing"))
    assert {"outcome-unknown", "previously-failed"} <= possible()
    assert "previously-failed" not in possible(effects="repeatable")
    assert "outcome-unknown" not in possible(effects="database")
    assert "handler-failed" in possible(effects="database")
    assert "handler-failed" not in possible()
