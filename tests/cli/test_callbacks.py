"""Callbacks as operators see them: what waits for a worker, payloads, `redrive`, and figures of sources."""

import json
from typing import Any

import pytest

from retrysafe._core.model import Claim, Deliveries, Final, Response
from retrysafe.stores.admin import Due, Entry
from tests.cli.records import PAYLOAD, Shop, identity
from tests.cli.terminal import Screen, run, shown

KEY = "evt_2026_11_15_0001"
WHY = ["--reason", "the ledger is repaired", "--by", "ada", "--yes"]
BODY = PAYLOAD.partition(b"\n")[2]


def due(shop: Shop) -> list[Due]:
    admin = shop.store.open_admin()
    try:
        shop.at(0)
        return list(admin.due("jobs"))
    finally:
        admin.close()


def audit(shop: Shop) -> list[Entry]:
    admin = shop.store.open_admin()
    try:
        return list(admin.audit())
    finally:
        admin.close()


def document(shop: Shop, *arguments: str) -> Any:
    done = run(*arguments, "--json", store=shop.url)
    assert done.err == ""
    return json.loads(done.out)


def test_what_waits_is_listed(shop: Shop) -> None:
    """By its state, apart from what failed for good; it has no expiry, because it does not expire."""
    shop.delivered("evt-received-0001", ago=40)
    shop.failed_delivery("evt-again-0000001", due_in=3600.0, ago=20)
    shop.failed_delivery("evt-failed-000001", ago=10)
    done = run("ls", "--state", "waiting", store=shop.url)
    title, *lines = done.out.splitlines()
    assert title.split()[-1] == "CALLBACK"
    assert [line.split()[1] for line in lines] == ["waiting", "waiting"]
    assert all(line.split()[5] == "-" for line in lines)
    assert all(line.endswith("jobs run-9") for line in lines)
    [again, received] = document(shop, "ls", "--state", "waiting")["records"]
    assert (received["standing"], received["payload_size"]) == ("waiting", len(PAYLOAD))
    assert received["due_at"] == received["created_at"]
    assert again["due_at"] > again["updated_at"]
    [failed] = document(shop, "ls", "--state", "failed")["records"]
    assert (failed["payload_size"], failed["due_at"]) == (len(PAYLOAD), None)


def test_the_receipts_of_a_run_are_listed(shop: Shop) -> None:
    """Its own, of all sources, and no requests with the same target."""
    shop.delivered("evt-of-another-01", target="run-8")
    shop.delivered("evt-of-the-run-01")
    shop.delivered("evt-of-the-run-02", action="others")
    shop.finished("a-request-0000001", target="run-9")
    found = document(shop, "ls", "--door", "callback", "--target", "run-9", "--show-keys")["records"]
    assert {one["key"] for one in found} == {"evt-of-the-run-01", "evt-of-the-run-02"}


def test_expired_receipts_are_purged_and_nothing_else(shop: Shop) -> None:
    """One that waits for a worker does not expire, and requests have their own retention."""
    [request] = shop.expired(1)
    handled = shop.delivered("evt-handled-00001", lease=600.0, retention=60.0, ago=500)
    shop.at(480)
    shop.store.finish(handled, Final("completed", Response(200)))
    left = shop.delivered("evt-received-0001", retention=60.0, ago=500)
    shop.at(0)
    done = run("purge", "--door", "callback", "--by", "ada", "--reason", "daily", store=shop.url)
    assert done.code == 0, done.err
    assert document(shop, "stats")["records"]["waiting"] == 1
    [entry] = audit(shop)
    assert (entry.act, entry.outcome) == ("purge", "1 record removed")
    admin = shop.store.open_admin()
    assert (admin.expired("request"), admin.expired("callback")) == (1, 0)
    admin.close()
    assert shop.store.look(left.id) is not None
    assert request.door == "request"


def test_show_says_what_waits_and_for_how_long(shop: Shop) -> None:
    """Since when, or when again; what is done with it, and by which command sooner."""
    received = shop.delivered("evt-received-0001", ago=600)
    again = shop.failed_delivery("evt-again-0000001", due_in=3600.0, ago=20)
    first = " ".join(run("show", identity(received), store=shop.url).out.split())
    assert "waiting Its payload is stored, and `retrysafe work` handles it." in first
    assert "callback jobs run-9" in first
    assert "waits for a worker, since 10 minutes ago" in first
    assert "gets 202: it is stored already, and a worker handles it" in first
    assert f'retrysafe redrive {identity(received)} --reason "…"' in first
    assert "retrysafe release" not in first
    second = " ".join(run("show", identity(again), store=shop.url).out.split())
    assert "waits for a worker, again in 60 minutes" in second
    assert "error=ConnectionError: the ledger is down" in second
    events = [event["event"] for event in document(shop, "show", identity(again))["timeline"]]
    assert events == ["created", "failed", "due", "expires"]


def test_a_payload_is_shown_without_its_secrets(shop: Shop) -> None:
    """Its headers and its body, as those of a response are; without its line of headers."""
    claim = shop.failed_delivery(KEY)
    text = " ".join(run("show", identity(claim), store=shop.url).out.split())
    assert "Payload no worker handles it content-type: application/json x-api-key: <redacted>" in text
    assert '"id": "evt_1"' in text
    assert "hunter2" not in text
    assert "sk_live_1" not in text
    found = document(shop, "show", identity(claim))["payload"]
    assert found["headers"] == [["content-type", "application/json"], ["x-api-key", "<redacted>"]]
    assert (found["kind"], found["cut"], "base64" in found) == ("json", False, False)
    assert document(shop, "show", identity(claim), "--payload")["payload"]["base64"]


def test_a_whole_payload(shop: Shop) -> None:
    """The exact bytes of the body, and nothing else."""
    claim = shop.delivered(KEY, payload=PAYLOAD + b"\xff\n\n")
    done = run("show", identity(claim), "--payload", "--json", store=shop.url)
    assert json.loads(done.out)["payload"]["kind"] == "binary"
    bare = shop.delivered("evt-text-00000001", payload=PAYLOAD)
    assert run("show", identity(bare), "--payload", store=shop.url).out == BODY.decode()


@pytest.mark.parametrize("stored", [b"", b"no headers", b"[1]\nbody", b'[["a"]]\nbody', b"\xff\nbody", b"[]"])
def test_a_damaged_payload(shop: Shop, stored: bytes) -> None:
    """It is shown as it is stored: an operator may want to see what is left."""
    claim = shop.failed_delivery(KEY, payload=stored)
    assert document(shop, "show", identity(claim))["payload"]["headers"] == []
    done = run("show", identity(claim), "--payload", "--json", store=shop.url)
    assert done.code == 0


def test_no_payload(shop: Shop) -> None:
    """A request has none, and neither has a delivery whose service stores none."""
    claim = shop.finished("pay_2026_11_15_0001")
    assert document(shop, "show", identity(claim))["payload"] is None
    done = run("show", identity(claim), "--payload", store=shop.url)
    assert (done.code, done.out) == (1, "")
    assert "this record has no payload" in done.err
    both = run("show", identity(claim), "--payload", "--body", store=shop.url)
    assert (both.code, "--body would have no effect" in both.err) == (2, True)


def failed(shop: Shop) -> Claim:
    return shop.failed_delivery(KEY)


def abandoned(shop: Shop) -> Claim:
    return shop.delivered(KEY, due_in=None)


def waiting(shop: Shop) -> Claim:
    return shop.failed_delivery(KEY, due_in=86400.0)


@pytest.mark.parametrize("make", [failed, abandoned, waiting])
def test_redrive(shop: Shop, make: Any) -> None:
    """A worker gets it at once, whatever it was; the audit trail says what that was."""
    claim = make(shop)
    assert due(shop) == []
    done = run("redrive", KEY, *WHY, store=shop.url)
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{identity(claim)}: redriven; a worker (retrysafe work) handles it\n"
    assert [one.payload for one in due(shop)] == [PAYLOAD]
    [entry] = audit(shop)
    assert (entry.act, entry.by, entry.reason) == ("redrive", "ada", "the ledger is repaired")
    was = "abandoned" if make is abandoned else "failed"
    assert (entry.outcome, entry.id) == (f"to be handled again, was {was}", claim.id)
    assert shop.store.finish(claim, Final("completed", Response(200))) is False


def test_redrive_in_json(shop: Shop) -> None:
    """As the other interventions have it."""
    claim = failed(shop)
    found = document(shop, "redrive", identity(claim), *WHY)
    assert (found["done"], found["id"], found["by"]) == (True, claim.id.hex(), "ada")
    assert (found["record"]["standing"], found["record"]["payload_size"]) == ("waiting", len(PAYLOAD))


def completed(shop: Shop) -> Claim:
    return shop.finished(KEY, Response(200), door="callback", scope=(), action="jobs")


def running(shop: Shop) -> Claim:
    return shop.delivered(KEY, lease=3600.0)


def bare(shop: Shop) -> Claim:
    return shop.failed_delivery(KEY, payload=None)


def a_request(shop: Shop) -> Claim:
    return shop.finished(KEY, state="failed")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (completed, "is completed (200)"),
        (running, "holds the lease"),
        (bare, "is failed (500), and has no stored payload"),
        (a_request, "Only callbacks whose service stores payloads have one"),
    ],
)
def test_what_is_not_redriven(shop: Shop, make: Any, said: str) -> None:
    """It says why, and nothing is changed."""
    claim = make(shop)
    before = shop.store.look(claim.id)
    done = run("redrive", KEY, *WHY, store=shop.url)
    assert (done.code, done.out) == (1, "")
    assert said in done.err
    assert "Nothing was changed." in done.err
    after = shop.store.look(claim.id)
    assert before is not None
    assert after is not None
    assert after.record == before.record
    assert audit(shop) == []


def test_many_are_redriven(shop: Shop) -> None:
    """Of one source; those without a payload are counted and left as they are."""
    claims = [shop.failed_delivery(f"evt-failed-{n:06}") for n in range(3)]
    shop.failed_delivery("evt-bare-00000001", payload=None)
    shop.failed_delivery("evt-other-0000001", action="others")
    shop.finished("a-request-000001", state="failed", action="jobs")
    done = run("redrive", "--action", "jobs", *WHY, store=shop.url)
    assert done.code == 0
    assert done.out == "Redriven 3 of 3 failed records; a worker (retrysafe work) handles them.\n"
    assert "1 failed record left out: there is no stored payload" in done.err
    assert {one.record.id for one in due(shop)} == {claim.id for claim in claims}
    assert {entry.act for entry in audit(shop)} == {"redrive"}
    again = run("redrive", "--action", "jobs", *WHY, store=shop.url)
    assert (again.code, again.out) == (1, "")
    assert "1 failed record not redriven: there is no stored payload" in again.err
    found = run("redrive", "--action", "jobs", "--state", "waiting", *WHY, "--json", store=shop.url)
    assert len(json.loads(found.out)["redriven"]) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["redrive"], "neither a key nor --path nor --action"),
        (["redrive", "--action", "jobs", "--state", "completed"], "it was handled"),
        (["redrive", "--action", "jobs", "--state", "in-progress"], "holds the lease"),
        (["redrive", KEY, "--older", "1h"], "a key was given, and with it --older"),
    ],
)
def test_wrong_usage(shop: Shop, arguments: list[str], said: str) -> None:
    """Nothing is done, and it is said what is expected."""
    done = run(*arguments, *WHY, store=shop.url)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_it_shows_and_asks(shop: Shop) -> None:
    """What follows, before it is done."""
    claim = failed(shop)
    screen = Screen("redrive", identity(claim), "--reason", "repaired", store=shop.url)
    screen.expect("[y/N]")
    text = " ".join(screen.text.split())
    assert "a worker (retrysafe work) handles it again, as attempt 2" in text
    assert "it will then be done twice" in text
    screen.type("y\r")
    assert screen.end() == 0
    assert len(due(shop)) == 1


def test_a_waiting_record_is_released_only_by_name(shop: Shop) -> None:
    """Its payload was acknowledged, and may never come again."""
    claim = shop.delivered(KEY)
    refused = run("release", KEY, *WHY, store=shop.url)
    assert (refused.code, refused.out) == (1, "")
    assert "is waiting" in refused.err
    assert "Add --state waiting to release it all the same: its payload is deleted" in refused.err
    assert len(due(shop)) == 1
    screen = Screen("release", KEY, "--state", "waiting", "--reason", "a test event", store=shop.url)
    screen.expect("[y/N]")
    text = " ".join(screen.text.split())
    assert "Its stored payload will be deleted" in text
    assert "may never deliver it again" in text
    screen.type("y\r")
    assert screen.end() == 0
    assert shop.store.look(claim.id) is None


def test_waiting_records_are_released_by_a_filter(shop: Shop) -> None:
    """By their state alone."""
    shop.delivered("evt-received-0001")
    shop.failed_delivery("evt-failed-000001")
    none = run("release", "--action", "jobs", *WHY, store=shop.url)
    assert (none.code, "no abandoned record matches" in none.err) == (1, True)
    done = run("release", "--action", "jobs", "--state", "waiting", *WHY, store=shop.url)
    assert done.out == "Released 1 of 1 waiting record; the next delivery with such a key runs.\n"


def test_a_waiting_record_is_resolved(shop: Shop) -> None:
    """An operator found out that it was done: no worker handles it. One that failed has an outcome."""
    claim = shop.delivered(KEY)
    done = run("resolve", KEY, "--done", *WHY, store=shop.url)
    assert (done.code, due(shop)) == (0, [])
    found = shop.store.look(claim.id)
    assert found is not None
    assert found.record.state == "completed"
    shop.failed_delivery("evt-again-0000001", due_in=1.0)
    refused = run("resolve", "evt-again-0000001", "--done", *WHY, store=shop.url)
    assert (refused.code, "Its outcome is known" in refused.err) == (1, True)


def test_sources(shop: Shop) -> None:
    """What was delivered, how much of it again, and how long it took until it was handled."""
    for number, ago in enumerate((400, 300)):
        claim = shop.delivered(f"evt-handled-{number:05}", lease=600.0, ago=ago)
        shop.at(ago - 100 * (number + 1))
        shop.store.finish(claim, Final("completed", Response(200)))
        keeper = shop.store.open_keeper()
        keeper.add_deliveries({claim.id: Deliveries(1, (0.0,))})
        keeper.close()
    shop.delivered("evt-received-0001", ago=600)
    shop.delivered("evt-other-0000001", action="others", ago=30)
    shop.finished("a-request-0000001")
    found = document(shop, "stats")
    assert found["records"]["waiting"] == 2
    assert found["oldest_waiting"]["waited"] == pytest.approx(600, abs=60)
    jobs, others = found["by_source"]
    assert jobs == {
        "source": "jobs",
        "events": 3,
        "deliveries": 5,
        "duplicates": 2,
        "duplicate_rate": 0.4,
        "handled": 2,
        "average_seconds": pytest.approx(150, abs=1),
        "longest_seconds": pytest.approx(200, abs=1),
    }
    assert (others["handled"], others["average_seconds"]) == (0, None)
    text = " ".join(run("stats", store=shop.url).out.split())
    assert "waiting 2 for a worker; the first due 10 minutes ago" in text
    assert "BY SOURCE EVENTS DELIVERIES DUPLICATES RATE HANDLED AVERAGE LONGEST jobs 3 5 2 40.0% 2 " in text
    assert "others 1 1 0 0.0% 0 - -" in text


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_on_a_terminal(shop: Shop, columns: int) -> None:
    """Everything fits its width."""
    claim = shop.failed_delivery(KEY, due_in=60.0)
    for arguments in (["stats"], ["ls"], ["show", identity(claim)]):
        screen = shown(*arguments, store=shop.url, columns=columns)
        assert max(map(len, screen.lines)) <= columns


def test_doctor_misses_the_worker(shop: Shop) -> None:
    """A payload that has waited for long is a warning; one that has just come is none."""
    shop.delivered("evt-received-0001", ago=30)
    checks = {one["check"]: one for one in document(shop, "doctor")["findings"]}
    assert checks["payloads"]["level"] == "ok"
    assert checks["abandoned"]["found"] == "no outcome is unknown"
    shop.delivered("evt-received-0002", ago=3600)
    checks = {one["check"]: one for one in document(shop, "doctor")["findings"]}
    assert checks["payloads"]["level"] == "warning"
    assert "waiting for a worker for 360" in checks["payloads"]["found"]


def test_an_archive_has_the_record(shop: Shop) -> None:
    """With the state that is stored, and without the payload."""
    shop.failed_delivery(KEY, due_in=60.0)
    [line] = run("export", store=shop.url).out.splitlines()
    record = json.loads(line)
    assert (record["door"], record["state"]) == ("callback", "failed")
    assert "hunter2" not in line
