"""`release` and `resolve`: they ask, they need a reason, they act on what was seen, they leave an entry."""

import json
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from retrysafe._core.model import Final, Found, Record, Reserved, Response
from retrysafe.cli.exits import Failure
from retrysafe.cli.intervene import Intervention, Selection, Settings, intervene
from retrysafe.cli.manual_response import Outcome, ResponseOptions, build_final
from retrysafe.stores.admin import Admin, Entry, Note
from tests.cli.records import JSON, Shop, identity
from tests.cli.terminal import Screen, run

KEY = "pay_2026_11_15_0001"
WHY = "the bank's list has no such payment"


def audit_entries(shop: Shop) -> list[Entry]:
    admin = shop.store.open_admin()
    try:
        return list(admin.audit())
    finally:
        admin.close()


def stored(shop: Shop, id: bytes) -> Record:
    shop.at(0)
    found = shop.store.look(id)
    assert found is not None
    return found.record


def test_release(shop: Shop) -> None:
    """The record is gone, the next claim runs as the first attempt, and the trail says who did it and why."""
    claim = shop.abandoned(KEY)
    done = run("release", KEY, "--reason", WHY, "--yes", store=shop.url)
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{identity(claim)}: released; the next request with this key runs\n"
    [entry] = audit_entries(shop)
    assert (entry.act, entry.outcome, entry.reason, entry.id) == ("release", "released", WHY, claim.id)
    assert entry.by.endswith(f"@{socket.gethostname()}")
    assert shop.store.reserve(claim._replace(token=b"another")) == Reserved(1)


def test_resolve_as_done(shop: Shop) -> None:
    """Stored exactly as given: status, repeated headers, body; and the old owner is fenced."""
    claim = shop.abandoned(KEY)
    done = run(
        "resolve", KEY, "--done", "--status", "201", "--body", '{"payment": 7}', "--header", "Location: /p/7",
        "--header", "Link: </a>", "--header", "Link: </b>", "--reason", WHY, "--by", "ada", "--yes", "--json",
        store=shop.url,
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert (document["done"], document["by"], document["reason"]) == (True, "ada", WHY)
    assert (document["record"]["standing"], document["record"]["status"]) == ("completed", 201)
    record = stored(shop, claim.id)
    assert record.response == Response(
        201,
        (
            (b"content-type", b"application/json"),
            (b"location", b"/p/7"),
            (b"link", b"</a>"),
            (b"link", b"</b>"),
        ),
        b'{"payment": 7}',
    )
    assert not record.omitted
    assert not shop.store.finish(claim, Final("completed", Response(200)))
    [entry] = audit_entries(shop)
    assert (entry.act, entry.outcome, entry.by) == ("resolve", "completed 201", "ada")


PLAIN = (b"content-type", b"text/plain; charset=utf-8")


@pytest.mark.parametrize(
    ("outcome", "given", "expected"),
    [
        ("completed", ResponseOptions(), Final("completed", Response(200), True)),
        ("failed", ResponseOptions(), Final("failed", Response(500), True)),
        ("completed", ResponseOptions(202), Final("completed", Response(202), True)),
        ("completed", ResponseOptions(204), Final("completed", Response(204))),
        ("completed", ResponseOptions(body=""), Final("completed", Response(200))),
        ("completed", ResponseOptions(402, "no"), Final("completed", Response(402, (PLAIN,), b"no"))),
        (
            "failed",
            ResponseOptions(402, None, ("X-Why: it",)),
            Final("failed", Response(402, ((b"x-why", b"it"),)), True),
        ),
        ("completed", ResponseOptions(body="fine"), Final("completed", Response(200, (PLAIN,), b"fine"))),
        ("completed", ResponseOptions(body="[1]"), Final("completed", Response(200, JSON, b"[1]"))),
        (
            "completed",
            ResponseOptions(body="a,b", content_type="text/csv"),
            Final("completed", Response(200, ((b"content-type", b"text/csv"),), b"a,b")),
        ),
    ],
)
def test_what_is_stored(shop: Shop, outcome: Outcome, given: ResponseOptions, expected: Final) -> None:
    """Without a body a tombstone, else what was given, with a content type."""
    assert build_final(outcome, given, stored(shop, shop.abandoned(KEY).id)) == expected


@pytest.mark.parametrize(
    ("flag", "state", "status"), [("--done", "completed", 200), ("--failed", "failed", 500)]
)
def test_a_tombstone(shop: Shop, flag: str, state: str, status: int) -> None:
    """Nothing but how it ended: retries get a status, and a header that says that the body is missing."""
    claim = shop.abandoned(KEY)
    done = run("resolve", KEY, flag, "--reason", WHY, "--yes", store=shop.url)
    assert f"retries get {status} with an empty body that is marked as omitted" in done.out
    record = stored(shop, claim.id)
    assert (record.state, record.response, record.omitted) == (state, Response(status), True)


def test_a_tombstone_has_the_head_that_was_sent(shop: Shop) -> None:
    """Status and headers that a client may have seen are the truth, unless it failed afterwards."""
    head = Response(207, JSON)
    done, failed = shop.checkpointed("stream-key-00001", head), shop.checkpointed("stream-key-00002", head)
    run("resolve", "stream-key-00001", "--done", "--reason", WHY, "--yes", store=shop.url)
    run("resolve", "stream-key-00002", "--failed", "--reason", WHY, "--yes", store=shop.url)
    assert (stored(shop, done.id).response, stored(shop, done.id).omitted) == (head, True)
    assert stored(shop, failed.id).response == Response(500)


def test_a_body_from_a_file_or_from_stdin(shop: Shop, tmp_path: Path) -> None:
    """Bytes as they are, and a content type that suits them."""
    file = tmp_path / "body.bin"
    file.write_bytes(b"\xff\x00\xfe")
    first, second = shop.abandoned("from-a-file-0001"), shop.abandoned("from-stdin-00001")
    run(
        "resolve",
        "from-a-file-0001",
        "--done",
        "--body",
        f"@{file}",
        "--reason",
        WHY,
        "--yes",
        store=shop.url,
    )
    arguments = ["resolve", "from-stdin-00001", "--done", "--body", "@-", "--reason", WHY, "--yes"]
    run(*arguments, store=shop.url, stdin=b"[1]")
    octets = ((b"content-type", b"application/octet-stream"),)
    assert stored(shop, first.id).response == Response(200, octets, b"\xff\x00\xfe")
    assert stored(shop, second.id).response == Response(200, JSON, b"[1]")


@pytest.mark.parametrize(
    ("outcome", "given", "complaint"),
    [
        ("completed", ResponseOptions(199), "not a final status"),
        ("completed", ResponseOptions(600), "not a final status"),
        ("completed", ResponseOptions(500), "is contradictory"),
        ("failed", ResponseOptions(200), "would look like a success"),
        ("completed", ResponseOptions(204, "x"), "has no body"),
        ("completed", ResponseOptions(headers=("nonsense",)), "not of the form NAME: VALUE"),
        ("completed", ResponseOptions(headers=("bad name: x",)), "not of the form NAME: VALUE"),
        (
            "completed",
            ResponseOptions(headers=("X: a\r\nSet-Cookie: b",)),
            "value of the header X contains a line break",
        ),
        (
            "completed",
            ResponseOptions(headers=("Set-Cookie: a\r\nb: c",)),
            "the header Set-Cookie cannot be stored",
        ),
        ("completed", ResponseOptions(headers=("Set-Cookie: a=b",)), "cannot be stored"),
        ("completed", ResponseOptions(headers=("Content-Length: 7",)), "cannot be stored"),
        ("completed", ResponseOptions(headers=("Original-Request-Id: 7",)), "cannot be stored"),
        ("completed", ResponseOptions(headers=("X: \u2713",)), "a header cannot have"),
        ("completed", ResponseOptions(headers=("content-type: c/d",), content_type="a/b"), "given twice"),
        ("completed", ResponseOptions(body="x", content_type="text/event-stream"), "event stream"),
        ("completed", ResponseOptions(body="@/no/such/file"), "cannot be read"),
        ("completed", ResponseOptions(body="@/dev/zero"), "larger than 1.0 MiB"),
    ],
)
def test_responses_that_are_refused(
    shop: Shop, outcome: Outcome, given: ResponseOptions, complaint: str
) -> None:
    """What could not be sent to a client, or would be wrong, is not stored."""
    with pytest.raises(Failure, match=complaint) as refused:
        build_final(outcome, given, stored(shop, shop.abandoned(KEY).id))
    assert refused.value.exit == 2
    assert refused.value.advice.endswith("Nothing was changed.")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "either --done or --failed"),
        (["--done", "--failed"], "either --done or --failed"),
        (["--done", "--status", "500"], "is contradictory"),
        (["--done", "--status", "x"], "--status"),
        (["--done", "--scope", "tenant"], "NAME=VALUE"),
    ],
)
def test_wrong_usage(shop: Shop, arguments: list[str], complaint: str) -> None:
    """Exit code 2, a sentence and advice, and nothing was changed."""
    claim = shop.abandoned(KEY)
    done = run("resolve", KEY, *arguments, "--reason", WHY, "--yes", store=shop.url)
    assert (done.code, done.out) == (2, "")
    assert complaint in done.err
    assert len(done.err.splitlines()) == 2
    assert stored(shop, claim.id).state == "in_progress"
    assert audit_entries(shop) == []


@pytest.mark.parametrize("command", [["release"], ["resolve", "--done"]])
def test_only_what_is_abandoned(shop: Shop, command: list[str]) -> None:
    """What is in progress, and what has ended, is left alone: exit code 1."""
    shop.running("running-key-00001")
    shop.finished("completed-key-001")
    for key, what in (("running-key-00001", "is in progress"), ("completed-key-001", "is completed (201)")):
        done = run(*command, key, "--reason", WHY, "--yes", store=shop.url)
        assert (done.code, done.out) == (1, "")
        assert what in done.err
        assert "Nothing was changed" in done.err
    assert audit_entries(shop) == []


@pytest.mark.parametrize("command", [["release"], ["resolve", "--failed"]])
def test_several_records_are_refused(shop: Shop, command: list[str]) -> None:
    """The same key in two scopes: both are listed, neither is touched, and an id tells them apart."""
    ours, theirs = shop.abandoned(KEY), shop.abandoned(KEY, scope=(("tenant", "zeta"),))
    done = run(*command, KEY, "--reason", WHY, "--yes", store=shop.url)
    assert done.code == 1
    assert identity(ours) in done.err
    assert identity(theirs) in done.err
    assert run(*command, identity(theirs), "--reason", WHY, "--yes", store=shop.url).code == 0
    assert stored(shop, ours.id).state == "in_progress"


@pytest.mark.parametrize("command", [["release"], ["resolve", "--done"]])
def test_without_a_terminal_yes_is_required(shop: Shop, command: list[str]) -> None:
    """It refuses at once instead of waiting for a reply, also if there is no reason."""
    claim = shop.abandoned(KEY)
    for arguments, complaint in (
        (["--reason", WHY], "--yes"),
        (["--yes"], "a reason"),
        (["--yes", "--reason", " "], "a reason"),
    ):
        done = run(*command, KEY, *arguments, store=shop.url, stdin=b"y\ny\n")
        assert (done.code, done.out) == (2, "")
        assert complaint in done.err
    assert stored(shop, claim.id).state == "in_progress"


@pytest.mark.parametrize("columns", [80, 140])
def test_on_a_terminal_it_shows_and_asks(shop: Shop, columns: int) -> None:
    """What it is about and what follows, the reason, the question; and only then it is done."""
    claim = shop.abandoned(KEY)
    screen = Screen("release", KEY, store=shop.url, columns=columns)
    screen.expect("Reason, for the audit trail: ")
    text = screen.text
    assert identity(claim) in text
    assert "POST /payments" in text
    assert "tenant=acme user=42" in text
    assert "RUN the handler again" in " ".join(text.split())
    assert KEY not in text
    screen.type(f"{WHY}\n")
    screen.expect("Release it? [y/N] ")
    assert stored(shop, claim.id).state == "in_progress"
    screen.type("y\n")
    assert screen.end() == 0
    assert "released; the next request with this key runs" in screen.text
    assert [entry.reason for entry in audit_entries(shop)] == [WHY]


def test_a_release_names_its_danger(shop: Shop) -> None:
    """What is known about the first attempt is said before it is asked whether to run it again."""
    shop.checkpointed("stream-key-00001", Response(200, JSON))
    shop.abandoned("transaction-key1", mode="tx")
    for key, danger in (
        ("stream-key-00001", "Part of its response"),
        ("transaction-key1", "was rolled back"),
    ):
        screen = Screen("release", key, "--reason", WHY, store=shop.url)
        screen.expect("[y/N] ")
        screen.type("n\n")
        screen.end()
        assert danger in " ".join(screen.text.split())


@pytest.mark.parametrize("reply", ["n\n", "\n", "nonsense\n", "\x04", "yes!\n"])
def test_anything_but_yes_is_no(shop: Shop, reply: str) -> None:
    """No, nothing, nonsense and the end of input leave everything as it was: exit code 1."""
    claim = shop.abandoned(KEY)
    screen = Screen("resolve", KEY, "--done", "--reason", WHY, store=shop.url)
    screen.expect("Resolve it as done? [y/N] ")
    screen.type(reply)
    assert screen.end() == 1
    assert "nothing was changed" in screen.text
    assert stored(shop, claim.id).state == "in_progress"
    assert audit_entries(shop) == []


def test_ctrl_c_at_the_question(shop: Shop) -> None:
    """Exit code 130, one word, no traceback, nothing changed."""
    claim = shop.abandoned(KEY)
    screen = Screen("release", KEY, "--reason", WHY, store=shop.url)
    screen.expect("[y/N] ")
    screen.wait_until_it_reads()
    screen.interrupt()
    assert screen.end() == 130
    assert "Interrupted." in screen.text
    assert "Traceback" not in screen.text
    assert stored(shop, claim.id).state == "in_progress"


def test_an_empty_reason_on_a_terminal(shop: Shop) -> None:
    """A reason is required on a terminal, too."""
    shop.abandoned(KEY)
    screen = Screen("release", KEY, store=shop.url)
    screen.expect("Reason")
    screen.type("\n")
    assert screen.end() == 2
    assert "a reason is required" in " ".join(screen.text.split())


def test_it_changed_meanwhile(shop: Shop) -> None:
    """Between question and reply the owner came back: nothing is done, and it says what it is now."""
    claim = shop.abandoned(KEY)
    screen = Screen("release", KEY, "--reason", WHY, store=shop.url)
    screen.expect("[y/N] ")
    shop.at(0)
    assert shop.store.finish(claim, Final("completed", Response(201)))
    screen.type("y\n")
    assert screen.end() == 1
    assert "changed meanwhile: completed (201)" in " ".join(screen.text.split())
    assert audit_entries(shop) == []


def test_it_changed_meanwhile_in_json(shop: Shop) -> None:
    """The document says that nothing was done, and what the record is now."""
    claim = shop.abandoned(KEY)
    arguments = ["resolve", KEY, "--done", "--json", "--reason", WHY]
    screen = Screen(*arguments, store=shop.url, piped_stdout=True)
    screen.expect("[y/N] ")
    shop.at(0)
    assert isinstance(
        shop.store.take_over(claim._replace(token=b"another"), claim.token, "in_progress"), Reserved
    )
    screen.type("y\n")
    assert screen.end() == 1
    document = json.loads(screen.piped)
    assert (document["done"], document["record"]["standing"]) == (False, "in_progress")
    assert audit_entries(shop) == []


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("done", [True, False])
def test_it_cannot_be_looked_at_afterwards(
    shop: Shop, capsys: pytest.CaptureFixture[str], done: bool, as_json: bool
) -> None:
    """The store fails right after the intervention: what is known is said, and decides how it ends."""
    claim = shop.abandoned(KEY)

    def act(admin: Admin, record: Record, note: Note) -> bool:
        acted = admin.release(record, note) if done else False
        with closing(sqlite3.connect(shop.path, isolation_level=None)) as other:
            other.execute("ALTER TABLE retrysafe_records RENAME TO elsewhere")
        return acted

    selection = Selection(KEY, None, (), shop.url)
    settings = Settings("ada", WHY, yes=True, show_keys=False, json=as_json)
    intervention = Intervention("", "", act, "released")
    if done:
        intervene(selection, settings, lambda _seen: intervention)
    else:
        with pytest.raises(Failure, match="changed meanwhile: its present state cannot be read") as failed:
            intervene(selection, settings, lambda _seen: intervention)
        assert failed.value.exit == 1
    told = capsys.readouterr()
    assert ("it was done; its present state cannot be read" in told.err) is done
    if as_json:
        assert json.loads(told.out)["done"] is done
    else:
        assert told.out == (f"{identity(claim)}: released\n" if done else "")


def test_questions_leave_stdout_to_the_data(shop: Shop) -> None:
    """With --json into a pipe and a terminal for the rest, it asks there, and the pipe gets data alone."""
    claim = shop.abandoned(KEY)
    screen = Screen("release", KEY, "--json", "--reason", WHY, store=shop.url, piped_stdout=True)
    screen.expect("[y/N] ")
    screen.type("y\n")
    assert screen.end() == 0
    document = json.loads(screen.piped)
    assert (document["done"], document["record"], document["id"]) == (True, None, claim.id.hex())


def test_the_reason_behind_sudo(shop: Shop) -> None:
    """The trail names the person, not the account that they became."""
    shop.abandoned(KEY)
    run("release", KEY, "--reason", WHY, "--yes", store=shop.url, env={"SUDO_USER": "ada"})
    assert audit_entries(shop)[0].by == f"ada@{socket.gethostname()}"


def test_a_transactional_record_may_be_released(shop: Shop) -> None:
    """Where nothing can have happened, a release is harmless and works the same."""
    claim = shop.abandoned(KEY, mode="tx")
    assert run("release", KEY, "--reason", WHY, "--yes", store=shop.url).code == 0
    shop.at(0)
    assert not isinstance(shop.store.look(claim.id), Found)
