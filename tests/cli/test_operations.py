"""Records of operations: shown as calls that returned, raised or failed, and settled with a value."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal

import pytest

from retrysafe import Guard, scopes
from retrysafe.operations import Operation, PreviouslyFailed, ValueOmitted, operation
from tests.cli.records import Shop, identity
from tests.cli.terminal import Run, run

BILLING = (("service", "billing"),)
HTTP = re.compile(r"\b(request|POST|client|handler|response|200|422|500|content-type)\b")
"""Words of another door."""


@dataclass
class Receipt:
    id: str
    amount: Decimal
    card: str


class CardDeclined(Exception):
    """Part of what a charge may come to."""


def charge_card(order_id: str, amount: Decimal) -> Receipt:
    match int(amount):
        case 13:
            raise CardDeclined("stolen", amount)
        case 14:
            raise ConnectionError("lost the gateway, password=hunter2")
        case _:
            return Receipt("r-1", amount, "4242424242424242")


class Till:
    """Operations on a store in a file."""

    def __init__(self, shop: Shop) -> None:
        self.url = shop.url
        self.guard = Guard(shop.url, scope=scopes.service("billing"))
        made = operation(self.guard, action="charge", target="order_id", raises=(CardDeclined,))
        self.charge: Operation[..., Receipt] = made(charge_card)

    def run(self, *arguments: str) -> Run:
        return run(*arguments, store=self.url)

    def text(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert (done.code, done.err) == (0, "")
        return done.out

    def abandon(self, shop: Shop, key: str = "key-of-o-9", *, amount: Decimal = Decimal(9)) -> str:
        """A call whose process died, as it is found afterwards."""
        self.charge.once("o-9", amount, key=key, scope="a-model")
        with closing(self.guard.store.open_admin()) as admin:
            [model] = [record for record in admin.export() if record.key == key]
        claim = shop.claim(key, door="operation", scope=BILLING, action="charge", target="o-9")
        shop.store.release(claim)
        shop.store.reserve(claim._replace(fingerprint=model.fingerprint, token=os.urandom(16)))
        return identity(claim)


@pytest.fixture
def till(shop: Shop) -> Iterator[Till]:
    till = Till(shop)
    yield till
    till.guard.close()


def unlike_http(text: str) -> None:
    assert HTTP.findall(text) == []


def test_listed_by_action_and_target(shop: Shop, till: Till) -> None:
    """With how each call ended, and no status; an action is found, a target and the beginning of one."""
    till.charge.once("o-1", Decimal(5), key="key-of-o-1")
    with pytest.raises(CardDeclined):
        till.charge.once("o-13", Decimal(13), key="key-of-o-13")
    with pytest.raises(ConnectionError):
        till.charge.once("o-14", Decimal(14), key="key-of-o-14")
    text = till.text("ls", "--door", "operation")
    header, *lines = text.splitlines()
    assert header.split()[-1] == "OPERATION"
    ended = {line.split()[-1]: (line.split()[1], line.split()[4]) for line in lines}
    assert ended == {
        "o-1": ("completed", "returned"), "o-13": ("completed", "raised"), "o-14": ("failed", "failed")
    }  # fmt: skip
    unlike_http(text)
    for given, targets in (
        (["--action", "charge"], {"o-1", "o-13", "o-14"}),
        (["--action", "refund"], set[str]()),
        (["--target", "o-1"], {"o-1"}),
        (["--action", "charge", "--target", "o-1*", "--state", "completed"], {"o-1", "o-13"}),
    ):
        document = json.loads(till.text("ls", "--json", *given))
        assert {record["target"] for record in document["records"]} == targets
        assert {record["status"] for record in document["records"]} <= {None}
    shop.finished("of-a-request")
    assert till.text("ls").splitlines()[0].split()[-1] == "CALL", "of several doors"


def test_a_value_is_shown(till: Till) -> None:
    """As JSON with its secrets hidden, in the words of a call; a number alone is JSON, too."""
    till.charge.once("o-1", Decimal(5), key="key-of-o-1")
    text = till.text("show", "key-of-o-1")
    assert "charge o-1" in text
    assert '"amount": "5"' in text
    assert '"card": "<redacted>"' in text
    assert "returned, attempt 1" in text
    assert "gets the stored value; the function does not run" in text
    unlike_http(text)
    document = json.loads(till.text("show", "key-of-o-1", "--json"))
    assert (document["outcome"], document["status"], document["error"]) == ("returned", None, None)
    assert json.loads(till.text("show", "key-of-o-1", "--body"))["card"] == "4242424242424242"

    operation(till.guard, action="count")(lambda: 3).once(key="key-of-count")
    assert "1 B of JSON:\n    3\n" in till.text("show", "key-of-count")


@pytest.mark.parametrize(
    ("amount", "error", "next"),
    [
        (13, "CardDeclined: stolen, 13", ["gets the stored", "CardDeclined, raised again"]),
        (
            14,
            "failed with ConnectionError: lost the gateway, password=<redacted>",
            ["is refused with previously-failed", "runs the function again, as attempt 2"],
        ),
    ],
)
def test_an_exception_is_shown(till: Till, amount: int, error: str, next: list[str]) -> None:
    """Its type and its message with secrets hidden, and what it means for a retry."""
    with pytest.raises((CardDeclined, ConnectionError)):
        till.charge.once("o-1", Decimal(amount), key="key-of-o-1")
    text = till.text("show", "key-of-o-1")
    assert error in text
    assert all(line in text for line in next)
    unlike_http(text)
    document = json.loads(till.text("show", "key-of-o-1", "--json"))
    assert document["outcome"] == ("raised" if amount == 13 else "failed")
    assert f"{document['error']['type']}: {document['error']['message']}".endswith(error.split("with ")[-1])


def test_a_value_that_was_not_stored(till: Till) -> None:
    """It is said to be missing, and so is what `--body` would print."""
    operation(till.guard, action="list", max_response=10)(lambda: "x" * 100).once(key="key-of-list")
    text = till.text("show", "key-of-list")
    assert "Retries get no value, but that it was done." in text
    assert "is told that it was done, without its value" in text
    assert "this record has no value: it was not stored" in till.run("show", "key-of-list", "--body").err


def test_resolved_with_a_value(shop: Shop, till: Till) -> None:
    """The caller's retry gets it with its type, and the function does not run."""
    id = till.abandon(shop)
    shown = till.text("show", id)
    assert f"retrysafe resolve {id} --done --value JSON" in shown
    assert "is refused with outcome-unknown" in shown
    unlike_http(shown)
    value = '{"id": "r-7", "amount": "9", "card": "none"}'
    said = till.text("resolve", id, "--done", "--value", value, "--reason", "as ch_7", "--yes")
    assert said == f"{id}: resolved as done; retries get the value that you gave, 44 B of JSON\n"
    done = till.charge.once("o-9", Decimal(9), key="key-of-o-9")
    assert (done.value, done.replayed) == (Receipt("r-7", Decimal(9), "none"), True)
    [entry] = json.loads(till.text("audit", "--json"))["entries"]
    assert (entry["action"], entry["target"], entry["outcome"]) == ("charge", "o-9", "completed")


def test_resolved_without_a_value(shop: Shop, till: Till) -> None:
    """The caller learns that it was done."""
    id = till.abandon(shop)
    assert "no value, but that it was done" in till.text("resolve", id, "--done", "--reason", "x", "--yes")
    done = till.charge.once("o-9", Decimal(9), key="key-of-o-9")
    assert (done.replayed, done.omitted) == (True, True)
    with pytest.raises(ValueOmitted):
        _ = done.value


def test_resolved_as_failed(shop: Shop, till: Till) -> None:
    """The caller is told so, in the operator's words."""
    id = till.abandon(shop)
    till.text("resolve", id, "--failed", "--message", "refunded by hand", "--reason", "x", "--yes")
    with pytest.raises(PreviouslyFailed, match="refunded by hand") as refused:
        till.charge.once("o-9", Decimal(9), key="key-of-o-9")
    assert refused.value.failure is not None
    assert refused.value.failure[:2] == ("ResolvedByOperator", "refunded by hand")
    assert "failed with ResolvedByOperator: refunded by hand" in till.text("show", id)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--done", "--value", "paid"], ["--value is not valid JSON", """--value '"paid"'"""]),
        (["--failed", "--value", "1"], ["--value does not go with --failed"]),
        (["--done", "--message", "x"], ["--message does not go with --done"]),
        (
            ["--done", "--status", "201", "--header", "A: b", "--body", ""],
            ["an operation has no response, and so no --status or --body or --header", "--value"],
        ),
        (["--done", "--value", "@missing.json"], ["missing.json cannot be read", "--value @FILE"]),
    ],
)
def test_what_does_not_fit_an_operation(
    shop: Shop, till: Till, given: list[str], expected: list[str]
) -> None:
    """It is refused before anything is asked, and nothing is changed."""
    id = till.abandon(shop)
    done = till.run("resolve", id, *given, "--reason", "x", "--yes")
    assert (done.code, done.out) == (2, "")
    assert all(part in done.err for part in [*expected, "Nothing was changed."])
    assert json.loads(till.text("show", id, "--json"))["standing"] == "abandoned"


def test_a_value_does_not_fit_a_request(shop: Shop) -> None:
    """A request has a response."""
    id = identity(shop.abandoned())
    done = run("resolve", id, "--done", "--value", "1", "--reason", "x", "--yes", store=shop.url)
    assert done.code == 2
    assert "a request has no value, and so no --value" in done.err


def test_released_by_action(shop: Shop, till: Till) -> None:
    """All failed calls of one operation; the next ones run."""
    for n in range(2):
        with pytest.raises(ConnectionError):
            till.charge.once(f"o-{n}", Decimal(14), key=f"key-of-o-{n}")
    shop.finished("another", state="failed")
    said = till.text("release", "--state", "failed", "--action", "charge", "--reason", "up again", "--yes")
    assert said == "Released 2 of 2 failed records; the next call with such a key runs.\n"
    with pytest.raises(ConnectionError):
        till.charge.once("o-1", Decimal(14), key="key-of-o-1")
    assert json.loads(till.text("audit", "--json"))["entries"][0]["outcome"] == "released, was failed"


def test_a_done_call_is_not_released_by_mistake(till: Till) -> None:
    """What it is, and what follows, in the words of a call."""
    till.charge.once("o-1", Decimal(5), key="key-of-o-1")
    refused = till.run("release", "key-of-o-1", "--reason", "x", "--yes")
    assert refused.code == 1
    assert "is completed (returned)" in refused.err
    assert "its stored value is deleted, and the next call with this key runs again" in refused.err


def test_counted_and_purged_by_door(shop: Shop, till: Till) -> None:
    """Operations by their action, however many targets there are; and one door's expired records alone."""
    for n in range(3):
        till.charge.once(f"o-{n}", Decimal(5), key=f"key-of-o-{n}")
    shop.finished("of-a-request")
    document = json.loads(till.text("stats", "--json"))
    assert {door: share["records"]["total"] for door, share in document["by_door"].items()} == {
        "operation": 3, "request": 1
    }  # fmt: skip
    assert [(one["action"], one["target"]) for one in document["by_route"]] == [
        ("charge", ""), ("POST", "/payments")
    ]  # fmt: skip
    assert "BY DOOR" in till.text("stats")
    shop.expired(2)
    assert json.loads(till.text("purge", "--door", "operation", "--json"))["removed"] == 0
    assert json.loads(till.text("purge", "--door", "request", "--dry-run", "--json"))["expired"] == 2
    assert json.loads(till.text("purge", "--door", "request", "--json"))["removed"] == 2


def test_the_word_of_a_profile(till: Till) -> None:
    """A service calls a completed record as its profile does, and so do lists if they are told."""
    till.charge.once("o-1", Decimal(5), key="key-of-o-1")
    script = (
        "import sys\n"
        "from retrysafe import profiles\n"
        "from retrysafe.policy import Wire\n"
        "made = profiles.Profile('jobs', 'a test', Wire(completed_word='succeeded'))\n"
        "profiles.PROFILES = {**profiles.PROFILES, 'jobs': made}\n"
        "from retrysafe.cli import main\n"
        "sys.exit(main())\n"
    )

    def jobs(*arguments: str) -> str:
        command = [sys.executable, "-c", script, *arguments, "--profile", "jobs", "--store", till.url]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert jobs("ls").splitlines()[1].split()[1] == "succeeded"
    assert jobs("show", "key-of-o-1").split()[1] == "succeeded"
    assert json.loads(jobs("stats", "--json"))["records"]["succeeded"] == 1
    assert "completed" not in jobs("ls", "--json").replace("completed_at", "")
    unknown = till.run("ls", "--profile", "no-such")
    assert unknown.code == 2
    assert "no-such" in unknown.err
