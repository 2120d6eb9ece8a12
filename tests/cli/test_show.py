"""`retrysafe show`: one record explained, found in every way that an operator may name it."""

import base64
import json
import subprocess
from contextlib import closing

import pytest

from retrysafe._core.model import Deliveries, Final, Response
from tests.cli.records import JSON, Shop, identity
from tests.cli.terminal import COMMAND, environment, run, shown

KEY = "pay_2026_11_15_0001"
SECRETIVE = Response(
    201,
    (*JSON, (b"location", b"/payments/7?token=tok_secret"), (b"x-client-secret", b"sk_secret")),
    b'{"payment": 7, "card": {"number": "4242424242424242"}, "nested": [{"client_secret": "hush"}]}',
)


def test_json(shop: Shop) -> None:
    """Everything about a record in one document: secrets hidden, and a body that can be had in full."""
    claim = shop.finished(KEY, SECRETIVE)
    done = run("show", KEY, "--json", store=shop.url)
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert document["id"] == claim.id.hex()
    assert document["headers"] == [
        ["content-type", "application/json"],
        ["location", "/payments/7?token=<redacted>"],
        ["x-client-secret", "<redacted>"],
    ]
    assert (document["body"]["kind"], document["body"]["cut"]) == ("json", False)
    assert json.loads(document["body"]["preview"]) == {
        "payment": 7, "card": "<redacted>", "nested": [{"client_secret": "<redacted>"}]
    }  # fmt: skip
    assert [event["event"] for event in document["timeline"]] == ["created", "completed", "expires"]
    assert document["next"] == [
        {"when": "", "result": "gets the stored 201 response; the handler does not run"}
    ]
    assert (document["audit"], document["commands"]) == ([], [])
    for secret in ("4242", "hush", "sk_secret", "tok_secret", KEY):
        assert secret not in done.out
    whole = json.loads(run("show", KEY, "--json", "--body", store=shop.url).out)
    assert base64.b64decode(whole["body"]["base64"]) == SECRETIVE.body


def test_every_way_to_name_it(shop: Shop) -> None:
    """By key, by key in quotation marks, by the first digits of its id in either case."""
    claim = shop.finished(KEY)
    digits = claim.id.hex()
    for name in (KEY, f'"{KEY}"', digits[:6], digits[:8].upper(), digits):
        done = run("show", name, "--json", store=shop.url)
        assert json.loads(done.out)["id"] == digits, name
    hidden = shop.finished("never-stored-key", keep_key=False)
    done = run("show", "never-stored-key", "--scope", "tenant=acme", "--scope", "user=42", store=shop.url)
    assert done.code == 1, "its id is made with the secret of the service"
    assert "give the record's id" in done.err
    assert json.loads(run("show", identity(hidden), "--json", store=shop.url).out)["key"] is None


def test_the_same_key_in_several_scopes(shop: Shop) -> None:
    """They are listed, nothing is guessed, and scope, door or id tell them apart."""
    ours = shop.finished(KEY)
    theirs = shop.finished(KEY, scope=(("tenant", "zeta"),))
    job = shop.finished(KEY, door="operation", action="cancel", target="wf-1")
    done = run("show", KEY, store=shop.url)
    assert (done.code, done.out) == (1, "")
    assert "3 records match" in done.err
    assert all(identity(claim) in done.err for claim in (ours, theirs, job))
    assert KEY not in done.err
    for more, claim in ((["--scope", "tenant=zeta"], theirs), (["--door", "operation"], job)):
        assert json.loads(run("show", KEY, *more, "--json", store=shop.url).out)["id"] == claim.id.hex()


@pytest.mark.parametrize("name", ["no-such-key", "abcdef12", "abc", "ff" * 32])
def test_not_found(shop: Shop, name: str) -> None:
    """One line and advice on stderr, nothing on stdout, exit code 1, and the key is not repeated."""
    shop.finished(KEY)
    done = run("show", name, "--json", store=shop.url)
    assert (done.code, done.out) == (1, "")
    assert "no record has this key" in done.err
    assert name not in done.err


@pytest.mark.parametrize("columns", [80, 140])
def test_an_abandoned_one_on_a_terminal(shop: Shop, columns: int) -> None:
    """Its life, what a retry would get under either policy, and commands that can be copied as they are."""
    claim = shop.abandoned(KEY, ago=7200)
    screen = shown("show", KEY, store=shop.url, columns=columns)
    assert max(map(len, screen.lines)) <= columns
    text = screen.text
    for piece in ("abandoned", "2 hours ago", "held until", "in 30 days", "req-7f3a", "trace-1", "none yet"):
        assert piece in text
    assert text.index('abandoned="hold"') < text.index('abandoned="retry"')
    assert "409 outcome-unknown; the handler does not run" in text
    assert "runs the handler again, as attempt 2" in text
    for command in ("resolve {} --done", "resolve {} --failed", "release {}"):
        assert f'retrysafe {command.format(identity(claim))} --reason "…"' in text
    assert KEY not in text


def test_commands_name_the_store_if_nothing_else_does(shop: Shop) -> None:
    """A copied command finds the same store, whether it was named by an option or by the environment."""
    shop.abandoned(KEY)
    by_option = json.loads(run("show", KEY, "--json", "--store", shop.url).out)["commands"]
    assert all(command.endswith(f"--store {shop.url}") for command in by_option)
    # Longer than the terminal is wide, and still in one piece.
    screen = shown("show", KEY, "--store", shop.url)
    assert all(f"  {command}\n" in screen.text for command in by_option)
    by_environment = json.loads(run("show", KEY, "--json", store=shop.url).out)["commands"]
    assert not any("--store" in command for command in by_environment)


@pytest.mark.parametrize(
    ("case", "results"),
    [
        ("running", ["409 in-flight"]),
        ("checkpointed", ["409 outcome-unknown"]),
        ("tombstone", ["gets the stored 200 with an empty body, marked as omitted"]),
        ("failed", ["gets the stored 500 response", "runs the handler again", "409 previously-failed"]),
        ("transactional", ["runs the handler again, as attempt 2"]),
        ("repeatable", ["runs the handler again", "409 outcome-unknown"]),
    ],
)
def test_what_the_next_request_gets(shop: Shop, case: str, results: list[str]) -> None:
    """What the protocol would decide, for each policy that makes a difference."""
    match case:
        case "running":
            shop.running(KEY)
        case "checkpointed":
            shop.checkpointed(KEY, Response(200, JSON))
        case "tombstone":
            shop.finished(KEY, Response(200, JSON), omitted=True)
        case "failed":
            shop.finished(KEY, Response(500, JSON, b"{}"), state="failed")
        case "transactional":
            shop.abandoned(KEY, mode="tx")
        case _:
            shop.abandoned(KEY, hold=0.0)
    found = [one["result"] for one in json.loads(run("show", KEY, "--json", store=shop.url).out)["next"]]
    assert len(found) == len(results)
    assert all(one.startswith(result) for one, result in zip(found, results, strict=True)), found


def test_the_body(shop: Shop) -> None:
    """Exact bytes into a pipe, whatever they are; escaped text or a dump onto a terminal."""
    every = bytes(range(256)) * 8
    shop.finished("binary-body-0001", Response(200, (), every))
    text = "grüße \x1b[31m\n" * 3
    shop.finished("text-body-000001", Response(200, (), text.encode()))
    command = [*COMMAND, "show", "binary-body-0001", "--body"]
    assert subprocess.run(command, capture_output=True, env=environment(shop.url)).stdout == every
    screen = shown("show", "binary-body-0001", "--body", store=shop.url)
    assert screen.raw.startswith(b"000000  00 01 02")
    assert screen.text.count("\n") == len(every) / 16
    screen = shown("show", "text-body-000001", "--body", store=shop.url)
    assert screen.text.startswith("grüße \\x1b[31m\n")


def test_a_body_that_is_not_there(shop: Shop) -> None:
    """It says so, with exit code 1, instead of printing an empty body."""
    shop.finished("tombstone-000001", Response(200, JSON), omitted=True)
    shop.abandoned("abandoned-00001")
    for key, why in (("tombstone-000001", "not stored"), ("abandoned-00001", "no response yet")):
        done = run("show", key, "--body", store=shop.url)
        assert (done.code, done.out) == (1, "")
        assert why in done.err


def test_a_preview_of_the_whole_body(shop: Shop) -> None:
    """The whole body on its own leaves nothing to preview; in JSON there is room for both."""
    shop.finished(KEY, Response(200, (), b"line\n" * 20))
    done = run("show", KEY, "--body", "--preview", "4", store=shop.url)
    assert (done.code, done.out) == (2, "")
    assert "--preview would have no effect" in done.err
    both = json.loads(run("show", KEY, "--body", "--preview", "4", "--json", store=shop.url).out)["body"]
    assert (both["preview"], base64.b64decode(both["base64"])) == ("line", b"line\n" * 20)


def test_deep_json(shop: Shop) -> None:
    """However deep a body is nested, it is shown."""
    shop.finished(KEY, Response(200, JSON, b"[" * 800 + b"]" * 800))
    done = run("show", KEY, "--preview", "100", store=shop.url)
    assert (done.code, done.err) == (0, "")
    assert "there is more" in done.out


def test_a_long_body_is_cut(shop: Shop) -> None:
    """The preview is as long as it was asked to be, and says that there is more."""
    shop.finished(KEY, Response(200, (), b"line\n" * 5000))
    done = run("show", KEY, "--preview", "50", store=shop.url)
    assert done.out.count("    line\n") == 10
    assert "there is more" in done.out
    assert "there is more" in run("show", KEY, "--preview", "0", store=shop.url).out


def test_details_and_deliveries(shop: Shop) -> None:
    """What was said of it besides, and how often it was asked for; names of secrets stay hidden."""
    claim = shop.claim("a-job-key-000001", door="callback", lease=3600.0)
    details = (("run", "9"), ("api_token", "sesame"))
    shop.store.finish(claim, Final("completed", Response(200, JSON, b"{}"), details=details))
    with closing(shop.store.open_keeper()) as keeper:
        keeper.add_deliveries({claim.id: Deliveries(3, [2.0, 1.0, 0.5])})
    document = json.loads(run("show", "a-job-key-000001", "--json", store=shop.url).out)
    assert document["details"] == {"run": "9", "api_token": "<redacted>"}
    assert (document["deliveries"], len(document["delivery_times"])) == (4, 3)
    assert document["seen_at"] > document["delivery_times"][0]
    assert "asked again" in [event["event"] for event in document["timeline"]]
    printed = run("show", "a-job-key-000001", store=shop.url).out
    assert "run=9" in printed
    assert "sesame" not in printed
    assert "3 times so far" in printed
