"""Tools of a server that its client has started, as desktop applications do: over stdio."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from retrysafe.operations.tool_calls.words import REPLAYED
from tests.mcp.billing import BLOCKS, LIBRARIES
from tests.mcp.connections import Connection, outcome, over_stdio, texts


@pytest.fixture(scope="module", params=LIBRARIES)
def billing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """One server for all tests of a library: each of them has keys and orders of its own."""
    with over_stdio(request.param, tmp_path_factory.mktemp(request.param)) as connection:
        yield connection


def test_a_retried_call_happens_once(billing: Connection) -> None:
    """The retry gets the same content and structured content; models and programs see that it is a replay."""
    first = billing.call("charge", order="once", amount=5, idempotency_key="once")
    again = billing.call("charge", order="once", amount=5, idempotency_key="once")
    assert billing.ledger().count("charge once 5") == 1
    assert not first.is_error
    assert not again.is_error
    assert outcome(first) == {"replayed": False, "attempt": 1, "stored": True}
    assert outcome(again) == {"replayed": True, "attempt": 1, "stored": True}
    assert again.structured_content == first.structured_content
    assert first.structured_content["order"] == "once"
    assert texts(again) == [*texts(first), REPLAYED]


def test_the_key_may_come_in_the_meta_of_a_call(billing: Connection) -> None:
    """A client that makes keys by itself needs no argument for them, and the schema has none."""
    assert texts(billing.call("refund", "meta", order="meta")) == ["refunded meta"]
    assert texts(billing.call("refund", "meta", order="meta")) == ["refunded meta", REPLAYED]
    assert billing.ledger().count("refund meta") == 1


def test_without_a_key_a_call_is_what_it_was(billing: Connection) -> None:
    """Nothing is stored and nothing is added, where a key is not required."""
    results = [billing.call("refund", order="plain") for _ in range(2)]
    assert billing.ledger().count("refund plain") == 2
    assert [texts(result) for result in results] == [["refunded plain"]] * 2
    assert [outcome(result) for result in results] == [{}, {}]


def test_concurrent_duplicates_run_once(billing: Connection) -> None:
    """While the first call runs, the others are told to wait, and afterwards they get its result."""
    first = billing.start("hold", "duplicates", name="duplicates")
    billing.wait_for("hold duplicates")
    others = [billing.start("hold", "duplicates", name="duplicates") for _ in range(5)]
    for refused in (other.result(30) for other in others):
        assert refused.is_error
        assert outcome(refused)["code"] == "in-flight"
        assert outcome(refused)["retry"] is True
        assert outcome(refused)["retryAfter"] > 0
        assert "then make the same call again, with the same key." in texts(refused)[0]
    billing.go("duplicates")
    assert texts(first.result(30)) == ["held duplicates"]
    assert texts(billing.call("hold", "duplicates", name="duplicates")) == ["held duplicates", REPLAYED]
    assert billing.ledger().count("held duplicates") == 1


def test_other_arguments_with_the_same_key_are_refused(billing: Connection) -> None:
    """A mismatch does nothing, says so, and leaves the result of the first call to its own retries."""
    billing.call("charge", order="mismatch", idempotency_key="mismatch")
    refused = billing.call("charge", order="mismatch", amount=7, idempotency_key="mismatch")
    assert refused.is_error
    assert outcome(refused) == {"code": "key-reused", "retry": False}
    assert texts(refused) == [
        "Idempotency key reused for another call (key-reused). The key was used for a different call, whose "
        "result is still stored for its own retries. Nothing was executed. Use a new key for a new call."
    ]
    assert outcome(billing.call("charge", order="mismatch", idempotency_key="mismatch"))["replayed"] is True
    assert [line for line in billing.ledger() if "mismatch" in line] == ["charge mismatch 1"]


def test_a_key_belongs_to_one_tool(billing: Connection) -> None:
    """The name of the tool is a part of what is compared."""
    billing.call("charge", order="two tools", idempotency_key="two tools")
    refused = billing.call("refund", "two tools", order="two tools")
    assert outcome(refused)["code"] == "key-reused"


def test_an_error_that_a_tool_reports_is_its_result(billing: Connection) -> None:
    """`ToolError` and `isError` are the tool's own word: stored, and replayed in exactly the same words."""
    first = billing.call("refund", "declined", order="declined")
    again = billing.call("refund", "declined", order="declined")
    assert billing.ledger().count("refund declined") == 1
    assert first.is_error
    assert again.is_error
    assert texts(first)[0].endswith("the card was declined")
    assert texts(again) == [*texts(first), REPLAYED]
    assert outcome(again)["replayed"] is True


def test_a_crash_is_not_run_again(billing: Connection) -> None:
    """What it did is not known: the retry is refused, and not told what the server keeps to itself."""
    try:
        first = billing.call("refund", "crash", order="crash")
        assert first.is_error
    except MCPError:
        pass  # a low-level handler that raises has a protocol error of its own
    again = billing.call("refund", "crash", order="crash")
    assert billing.ledger().count("refund crash") == 1
    assert again.is_error
    assert outcome(again)["code"] == "previously-failed"
    assert outcome(again)["retry"] is False
    assert "Check the resource, then use a new key to try again." in texts(again)[0]
    assert "secret" not in texts(again)[0]


def test_what_was_not_done_is_tried_again(billing: Connection) -> None:
    """`NotDone` frees the key, and the model is told when to come back."""
    for attempt in (1, 2):
        refused = billing.call("refund", "busy", order="busy")
        assert refused.is_error
        assert outcome(refused) == {"code": "not-done", "retry": True, "retryAfter": 5}
        assert "The bank is closed. Wait 5 seconds, then make the same call again" in texts(refused)[0]
        assert billing.ledger().count("refund busy") == attempt


def test_blocks_of_every_kind_are_replayed_as_they_were(billing: Connection) -> None:
    """Images, sounds, links and embedded binary resources, with their annotations."""
    first = billing.call("pictures", "pictures")
    again = billing.call("pictures", "pictures")
    assert first.content == BLOCKS
    assert again.content[:-1] == BLOCKS
    assert billing.ledger().count("pictures") == 1


@pytest.mark.parametrize(
    "key",
    [
        5,
        True,
        "",
        "   ",
        "line\nbreak",
        "\u202e",
        "k" * 256,
        "\u00e9" * 200,
        ["key"],
        {"a": {"b": [1, 2, {"c": None}]}},
        "k" * 1_000_000,
    ],
    ids=lambda key: f"{type(key).__name__} {str(key)[:8]!a}",
)
def test_hostile_keys_are_tool_errors(billing: Connection, key: Any) -> None:
    """What is not a key is refused in words, and the session goes on."""
    results = [billing.call("refund", key, order="hostile")]
    results.append(billing.call("charge", order="hostile", idempotency_key=key))
    for refused in results:
        assert refused.is_error
        assert outcome(refused) == {"code": "key-invalid", "retry": None}
        assert "Correct the key." in texts(refused)[0]
        assert len(texts(refused)[0]) < 500
    assert not any("hostile" in line for line in billing.ledger())


def test_a_missing_key_is_a_tool_error(billing: Connection) -> None:
    """It names the argument, and nothing was done."""
    refused = billing.call("charge", order="keyless")
    assert refused.is_error
    assert "idempotency_key" in texts(refused)[0]
    assert "charge keyless 1" not in billing.ledger()


def test_a_cancelled_call_is_recorded(billing: Connection) -> None:
    """The tool goes on when its client has lost patience, and the retry gets what came of it."""
    call = billing.start("hold", "cancelled", name="cancelled")
    billing.wait_for("hold cancelled")
    call.cancel()
    # The server reads messages in their order, so by the end of this call it has cancelled the other one.
    billing.call("refund", order="in between")
    billing.go("cancelled")
    billing.wait_for("held cancelled")
    deadline = time.monotonic() + 20
    while outcome(again := billing.call("hold", "cancelled", name="cancelled")).get("code") == "in-flight":
        assert time.monotonic() < deadline
    assert texts(again) == ["held cancelled", REPLAYED]
    assert billing.ledger().count("hold cancelled") == 1


def test_a_server_says_how_keys_are_passed(billing: Connection) -> None:
    """To models in its instructions and the input schema, to clients in annotations and `_meta`."""
    instructions = billing.client.instructions
    assert instructions is not None
    assert "pass it in the argument idempotency_key" in instructions
    tools = {tool.name: tool for tool in billing.portal.call(billing.client.list_tools).tools}
    charge, refund = tools["charge"], tools["refund"]
    schema = charge.input_schema
    assert "idempotency_key" in schema["required"]
    assert schema["properties"]["idempotency_key"]["description"].startswith("Make one key, such as a UUID")
    assert list(refund.input_schema["properties"]) == ["order"]
    assert charge.annotations is not None
    assert charge.annotations.idempotent_hint is True
    assert (charge.meta or {})["io.retrysafe/idempotency"] == {
        "metaKey": "io.retrysafe/idempotencyKey",
        "argument": "idempotency_key",
        "required": True,
        "retentionSeconds": 86400,
    }


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_server_that_is_killed(library: str, tmp_path: Path) -> None:
    """After a restart, what was done is replayed; what was cut off is unknown, or done again if that does no
    harm."""
    with over_stdio(library, tmp_path) as billing:
        done = billing.call("charge", order="done", idempotency_key="done")
        held = [billing.start(tool, tool, name=tool) for tool in ("hold", "repeat")]
        for tool in ("hold", "repeat"):
            billing.wait_for(f"hold {tool}")
        os.kill(billing.pid(), signal.SIGKILL)
        for call in held:
            with pytest.raises(MCPError):
                call.result(30)
    with over_stdio(library, tmp_path) as billing:
        assert billing.call("charge", order="done", idempotency_key="done").content[:-1] == done.content
        billing.go("repeat")
        repeated = _when_the_lease_is_over(billing, "repeat")
        assert texts(repeated) == ["held repeat"]
        assert outcome(repeated) == {"replayed": False, "attempt": 2, "stored": True}
        unknown = _when_the_lease_is_over(billing, "hold")
        assert unknown.is_error
        assert outcome(unknown) == {"code": "outcome-unknown", "retry": False}
        assert "Do not use a new key before you know." in texts(unknown)[0]
        assert billing.ledger().count("hold hold") == 1


def _when_the_lease_is_over(billing: Connection, tool: str) -> Any:
    deadline = time.monotonic() + 20
    while outcome(result := billing.call(tool, tool, name=tool)).get("code") == "in-flight":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return result
