"""`release --state` and `release --path`: failed and completed records, and many at once."""

import json
import sqlite3
from contextlib import closing

import pytest

from retrysafe._core.model import Claim, Final, Reserved, Response
from retrysafe.stores.admin import Entry, Query
from tests.cli.records import JSON, Shop, identity
from tests.cli.terminal import Screen, run

KEY = "pay_2026_11_15_0001"
WHY = ["--reason", "the card network was down", "--by", "ada", "--yes"]
ERROR = Response(500, JSON, b"{}")


def audit(shop: Shop) -> list[Entry]:
    admin = shop.store.open_admin()
    try:
        return list(admin.audit())
    finally:
        admin.close()


def left(shop: Shop) -> set[str]:
    """The keys of the records that are there."""
    admin = shop.store.open_admin()
    try:
        shop.at(0)
        return {str(sighting.record.key) for sighting in admin.list(Query())}
    finally:
        admin.close()


def settle(shop: Shop, key: str, state: str, **more: object) -> Claim:
    return shop.finished(key, ERROR if state == "failed" else None, state=state, **more)  # type: ignore[arg-type]  # of `claim`


@pytest.mark.parametrize(("state", "status"), [("failed", 500), ("completed", 201)])
def test_a_settled_key(shop: Shop, state: str, status: int) -> None:
    """Refused as before, with the option that would do it and what that means; with the option it is gone,
    the next request runs, and the audit trail has what it was."""
    claim = settle(shop, KEY, state)
    refused = run("release", KEY, *WHY, store=shop.url)
    assert (refused.code, refused.out) == (1, "")
    assert f"is {state} ({status})" in refused.err
    assert f"--state {state}" in refused.err
    assert "the next request with this key runs again" in refused.err
    assert (left(shop), audit(shop)) == ({KEY}, [])
    done = run("release", KEY, "--state", state, *WHY, store=shop.url)
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{identity(claim)}: released; the next request with this key runs\n"
    [entry] = audit(shop)
    assert (entry.act, entry.by, entry.reason) == ("release", "ada", "the card network was down")
    assert (entry.outcome, entry.id) == (f"released, was {state} {status}", claim.id)
    assert shop.store.reserve(claim._replace(token=b"another")) == Reserved(1)


@pytest.mark.parametrize(("state", "other"), [("failed", "completed"), ("completed", "failed")])
def test_another_state_than_was_named(shop: Shop, state: str, other: str) -> None:
    """What the operator expects is not what is there: nothing is done."""
    settle(shop, KEY, state)
    shop.abandoned("abandoned-key-0001")
    done = run("release", KEY, "--state", other, *WHY, store=shop.url)
    assert (done.code, done.out) == (1, "")
    assert f"is {state}" in done.err
    done = run("release", "abandoned-key-0001", "--state", other, *WHY, store=shop.url)
    assert (done.code, done.out) == (1, "")
    assert "Leave --state out" in done.err
    assert (left(shop), audit(shop)) == ({KEY, "abandoned-key-0001"}, [])


def test_a_live_lease(shop: Shop) -> None:
    """No state and no filter releases what a worker may be running."""
    shop.running(KEY)
    for state in ("failed", "completed", "abandoned"):
        done = run("release", KEY, "--state", state, *WHY, store=shop.url)
        assert (done.code, done.out) == (1, "")
        assert "Its worker holds the lease for another" in done.err
        done = run("release", "--path", "*", "--state", state, *WHY, store=shop.url)
        assert (done.code, done.out) == (1, "")
        assert f"no {state} record matches" in done.err
    done = run("release", KEY, "--state", "in-progress", *WHY, store=shop.url)
    assert (done.code, done.out) == (2, "")
    assert "the worker holds the lease" in done.err
    assert (left(shop), audit(shop)) == ({KEY}, [])


@pytest.mark.parametrize(
    ("state", "said"),
    [("completed", "This request is DONE."), ("failed", "The stored failure will be deleted")],
)
def test_it_says_what_it_means_and_asks(shop: Shop, state: str, said: str) -> None:
    """Before the question: the next request with this key runs, and what that may repeat."""
    settle(shop, KEY, state)
    screen = Screen("release", KEY, "--state", state, "--reason", "x", store=shop.url)
    screen.expect("Release it? [y/N] ")
    text = " ".join(screen.text.split())
    assert said in text
    assert "the next request with this key will RUN the handler again" in text
    assert "done twice" in text
    screen.type("n\n")
    assert screen.end() == 1
    assert (left(shop), audit(shop)) == ({KEY}, [])


def test_it_was_retried_meanwhile(shop: Shop) -> None:
    """A retry took the failed key over between question and reply: it is not released."""
    claim = settle(shop, KEY, "failed")
    screen = Screen("release", KEY, "--state", "failed", "--reason", "x", store=shop.url)
    screen.expect("[y/N] ")
    shop.at(0)
    assert isinstance(shop.store.take_over(claim._replace(token=b"another"), claim.token, "failed"), Reserved)
    screen.type("y\n")
    assert screen.end() == 1
    assert "changed meanwhile: in progress" in " ".join(screen.text.split())
    assert (left(shop), audit(shop)) == ({KEY}, [])


@pytest.mark.parametrize(
    ("filters", "gone"),
    [
        (["--path", "/payments"], {"payments-1", "payments-2"}),
        (["--path", "/pay*"], {"payments-1", "payments-2", "payouts-1"}),
        (["--path", "/pay*", "--older", "10m"], {"payments-2"}),
        (["--path", "*", "--younger", "10m", "--scope", "tenant=zeta"], {"payouts-1"}),
    ],
)
def test_many_by_path(shop: Shop, filters: list[str], gone: set[str]) -> None:
    """Those in the named state that match, as `ls` finds them; each with an entry of its own."""
    settle(shop, "payments-1", "failed")
    settle(shop, "payments-2", "failed", ago=3600.0)
    settle(shop, "payouts-1", "failed", target="/payouts", scope=(("tenant", "zeta"),))
    settle(shop, "completed-1", "completed")
    shop.abandoned("abandoned-1")
    before = left(shop)
    done = run("release", "--state", "failed", *filters, *WHY, "--json", store=shop.url)
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert (document["done"], document["changed"], document["more"]) == (True, [], False)
    assert (document["by"], document["reason"]) == ("ada", "the card network was down")
    assert left(shop) == before - gone
    entries = audit(shop)
    assert {entry.key for entry in entries} == gone
    assert {entry.id.hex() for entry in entries if entry.id} == set(document["released"])
    assert {(entry.by, entry.outcome) for entry in entries} == {("ada", "released, was failed 500")}


def test_many_without_a_state(shop: Shop) -> None:
    """Abandoned ones only, as for one key."""
    settle(shop, "failed-1", "failed")
    shop.abandoned("abandoned-1")
    shop.abandoned("abandoned-2")
    done = run("release", "--path", "/payments", *WHY, store=shop.url)
    assert (done.code, done.err) == (0, "")
    assert done.out == "Released 2 of 2 abandoned records; the next request with such a key runs.\n"
    assert left(shop) == {"failed-1"}


def test_a_limit(shop: Shop) -> None:
    """No more than that, and it says that there are more."""
    for number in range(5):
        settle(shop, f"failed-{number}", "failed")
    done = run("release", "--path", "/payments", "--state", "failed", "--limit", "2", *WHY, store=shop.url)
    assert done.code == 0
    assert "Released 2 of 2 failed records" in done.out
    assert "More records match" in done.err
    assert len(left(shop)) == 3


def test_many_are_shown_before_the_question(shop: Shop) -> None:
    """The first of them and their number; a record that changed meanwhile is left alone, and named."""
    claims = [settle(shop, f"completed-{number:02}", "completed") for number in range(22)]
    screen = Screen(
        "release", "--path", "/payments", "--state", "completed", "--reason", "x", store=shop.url, columns=100
    )
    screen.expect("Release 22 completed records? [y/N] ")
    text = " ".join(screen.text.split())
    assert "and 2 more" in text
    assert "They are DONE." in text
    assert "the next request with its key will RUN the handler again" in text
    assert len(left(shop)) == 22
    changed = claims[7]
    with closing(sqlite3.connect(shop.path, isolation_level=None)) as other:
        other.execute("UPDATE retrysafe_records SET token = x'00' WHERE id = ?", (changed.id,))
    screen.type("y\n")
    assert screen.end() == 1
    assert "Released 21 of 22 completed records" in screen.text
    assert f"changed meanwhile: {identity(changed)}" in " ".join(screen.text.split())
    assert left(shop) == {"completed-07"}
    assert len(audit(shop)) == 21


def test_trouble_in_the_middle(shop: Shop) -> None:
    """What was released until then is told, in JSON as well; the exit code is that of a store that failed."""
    for number in range(3):
        settle(shop, f"failed-{number}", "failed", ago=300.0 - number)
    shop.close()
    with closing(sqlite3.connect(shop.path, isolation_level=None)) as other:
        other.execute(
            "CREATE TRIGGER trouble BEFORE DELETE ON retrysafe_records WHEN OLD.key = 'failed-0' "
            "BEGIN SELECT RAISE(ABORT, 'the disk is on fire'); END"
        )
    done = run("release", "--path", "/payments", "--state", "failed", *WHY, "--json", store=shop.url)
    assert done.code == 3
    document = json.loads(done.out)
    assert (document["done"], len(document["released"])) == (False, 2)
    assert "released 2 of 3 failed records" in done.err
    assert "the disk is on fire" in done.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "neither a key nor --path"),
        (["--state", "failed"], "neither a key nor --path"),
        ([KEY, "--path", "/payments"], "a key was given, and with it --path"),
        ([KEY, "--older", "1h", "--limit", "3"], "--older and --limit"),
        (["--path", "/a/*/b"], "a * before its end"),
        (["--path", "/payments", "--state", "nonsense"], "--state"),
    ],
)
def test_wrong_usage(shop: Shop, arguments: list[str], complaint: str) -> None:
    """Exit code 2, a sentence and advice, and nothing was changed."""
    shop.abandoned(KEY)
    done = run("release", *arguments, *WHY, store=shop.url)
    assert (done.code, done.out) == (2, "")
    assert complaint in done.err
    assert len(done.err.splitlines()) == 2
    assert (left(shop), audit(shop)) == ({KEY}, [])


@pytest.mark.parametrize(("missing", "complaint"), [("--yes", "--yes"), ("--reason", "a reason")])
def test_many_need_a_reason_and_a_confirmation(shop: Shop, missing: str, complaint: str) -> None:
    """As one does: without a terminal both have to be given."""
    settle(shop, KEY, "failed")
    given = ["--reason", "x"] if missing == "--yes" else ["--yes"]
    done = run("release", "--path", "*", "--state", "failed", *given, store=shop.url, stdin=b"y\n")
    assert (done.code, done.out) == (2, "")
    assert complaint in done.err
    assert (left(shop), audit(shop)) == ({KEY}, [])


def test_what_show_offers(shop: Shop) -> None:
    """For a failed record the command that frees it; for a completed one none, because it would run twice."""
    failed, _ = settle(shop, KEY, "failed"), settle(shop, "completed-key-001", "completed")
    [command] = json.loads(run("show", KEY, "--json", store=shop.url).out)["commands"]
    assert command == f'retrysafe release {identity(failed)} --state failed --reason "…"'
    assert json.loads(run("show", "completed-key-001", "--json", store=shop.url).out)["commands"] == []


def test_a_released_completed_key_is_fenced(shop: Shop) -> None:
    """The worker that completed it cannot bring it back."""
    claim = settle(shop, KEY, "completed")
    assert run("release", KEY, "--state", "completed", *WHY, store=shop.url).code == 0
    shop.at(0)
    assert shop.store.finish(claim, Final("completed", Response(201))) is False
