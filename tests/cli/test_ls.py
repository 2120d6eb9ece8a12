"""`retrysafe ls`, on a terminal and without one."""

import json
import re

import pytest

from retrysafe._core.model import Response
from tests.cli.records import DAY, JSON, Shop, identity
from tests.cli.terminal import COLOURS, run, shown

RECORD: dict[str, type | tuple[type, ...]] = {
    "id": str,
    "standing": str,
    "door": str,
    "action": str,
    "target": str,
    "scope": dict,
    "key": (str, type(None)),
    "status": (int, type(None)),
    "outcome": (str, type(None)),
    "size": int,
    "omitted": bool,
    "attempt": int,
    "payload_size": (int, type(None)),
    "mode": str,
    "checkpointed": bool,
    "fingerprint": str,
    "request_id": str,
    "correlation_id": (str, type(None)),
    "details": dict,
    "deliveries": int,
    "age": float,
    "created_at": str,
    "updated_at": str,
    "completed_at": (str, type(None)),
    "lease_until": (str, type(None)),
    "held_until": str,
    "due_at": (str, type(None)),
    "expires_at": str,
    "retention_from": str,
    "seen_at": (str, type(None)),
    "delivery_times": list,
}
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture
def full(shop: Shop) -> Shop:
    """One record of every kind."""
    shop.abandoned("abandoned-old-0001", ago=7200)
    shop.abandoned("abandoned-young-01", ago=600, target="/refunds")
    shop.running("running-key-00001", ago=5)
    shop.finished("completed-key-001", ago=60, scope=(("tenant", "zeta"),))
    shop.finished("failed-key-000001", Response(500, JSON, b"{}"), state="failed", ago=90)
    shop.finished("an-operation-key1", door="operation", action="cancel", target="wf-1", ago=30)
    return shop


def test_json(full: Shop) -> None:
    """One document, in which every field has its type, times are ISO 8601 in UTC, and keys are masked."""
    done = run("ls", "--json", store=full.url)
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert set(document) == {"records", "more", "now"}
    for record in document["records"]:
        assert {name: isinstance(record[name], kind) for name, kind in RECORD.items()} == dict.fromkeys(
            RECORD, True
        )
        assert set(record) == set(RECORD)
        assert all(ISO.fullmatch(record[name]) for name in RECORD if name.endswith("_at") and record[name])
        assert record["key"].endswith("••••")
    standings = [(record["standing"], round(record["age"], -1)) for record in document["records"]]
    assert [standing for standing, _ in standings[:2]] == ["abandoned", "abandoned"]
    assert standings[0][1] > standings[1][1], "the oldest abandoned one comes first"
    youngest_first = [age for _, age in standings[2:]]
    assert youngest_first == sorted(youngest_first)


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (["--state", "abandoned"], 2),
        (["--state", "in-progress"], 1),
        (["--state", "completed", "--state", "failed"], 3),
        (["--door", "operation"], 1),
        (["--scope", "tenant=acme"], 5),
        (["--scope", "tenant=acme", "--scope", "user=7"], 0),
        (["--path", "/refunds"], 1),
        (["--path", "/re*"], 1),
        (["--older", "1h"], 1),
        (["--younger", "2m", "--older", "45s"], 2),
        (["--request-id", "req-7f3a"], 6),
        (["--request-id", "req-7f3a", "--door", "operation", "--path", "wf-1"], 1),
        (["--request-id", "another"], 0),
        (["--limit", "4"], 4),
    ],
)
def test_filters(full: Shop, filters: list[str], found: int) -> None:
    """Each filter leaves what it should, and they combine."""
    document = json.loads(run("ls", "--json", *filters, store=full.url).out)
    assert len(document["records"]) == found
    assert document["more"] == ("--limit" in filters)


def test_json_is_utf_8(shop: Shop) -> None:
    """Dots and letters are themselves, and what could steer a terminal is escaped; in another encoding all is
    ASCII, and the document is the same."""
    shop.finished("completed-key-001", target="/grüße/注文\x9b31m\u202e")
    done = run("ls", "--json", store=shop.url)
    assert '"comp••••"' in done.out
    assert '"/grüße/注文\\u009b31m\\u202e"' in done.out
    for encoding in ("ascii", "latin-1", "cp1252"):
        other = run("ls", "--json", store=shop.url, env={"PYTHONIOENCODING": encoding})
        assert other.out.isascii()
        assert json.loads(other.out)["records"][0]["key"] == "comp••••"
        assert json.loads(other.out)["records"][0]["target"] == json.loads(done.out)["records"][0]["target"]


def test_fields_for_awk(full: Shop) -> None:
    """Piped, a line of ordinary values fits 120 columns, and no field but the last contains a space."""
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    full.finished("by-credentials-1", scope=(("credentials", digest),), target="/api/v1/customers/payments")
    header, *rows = run("ls", store=full.url).out.splitlines()
    assert max(map(len, [header, *rows])) <= 120
    for row in rows:
        record, state, age, key, status, expires, scope, action, target = row.split()
        assert re.fullmatch(r"[0-9a-f]{8}", record)
        assert state in ("abandoned", "in-progress", "completed", "failed")
        assert re.fullmatch(r"\d+[smhd]", age)
        assert re.fullmatch(r"\d+[smhd]", expires)
        assert key.endswith("••••")
        assert status in ("-", "returned") or status.isdecimal()
        assert "=" in scope
        assert action in ("POST", "cancel")
        assert target
    assert "credentials=2d711642 " in "\n".join(rows)


def test_without_a_terminal(full: Shop) -> None:
    """Plain aligned text: no colour, no lines, nothing cut; a long path makes only its own line long."""
    path = "/a/very/long/path" * 20
    full.finished("long-path-key-01", target=path)
    done = run("ls", store=full.url)
    assert (done.code, done.err) == (0, "")
    header, *rows = done.out.splitlines()
    assert header.split() == "RECORD STATE AGE KEY STATUS EXPIRES SCOPE CALL".split()
    assert len(rows) == 7
    assert path in done.out
    assert sorted(map(len, rows))[-2] <= 120
    assert done.out.isascii() or set(done.out) - set(map(chr, range(128))) == {"•"}
    assert "\x1b" not in done.out
    assert len({line.index("tenant=") for line in rows}) == 1, "columns stand below each other"


@pytest.mark.parametrize("columns", [40, 80, 140])
def test_on_a_terminal(full: Shop, columns: int) -> None:
    """It fits the width, has colours, and shows the same records; a wider one shows more of them."""
    full.finished("long-path-key-01", target="/a/very/long/path" * 20)
    screen = shown("ls", store=full.url, columns=columns)
    assert max(map(len, screen.lines)) <= columns
    assert COLOURS.search(screen.raw)
    assert screen.text.count("abandoned") == 2
    assert ("EXPIRES" in screen.text) == (columns == 140)
    if columns >= 80:
        assert "tenant=acme user=42" in screen.text
        assert "…" in screen.text


def test_no_color(full: Shop) -> None:
    """NO_COLOR is honoured, as is a terminal that can do nothing."""
    assert not COLOURS.search(shown("ls", store=full.url, env={"NO_COLOR": "1"}).raw)
    dumb = shown("ls", store=full.url, env={"TERM": "dumb"}).raw
    assert b"\x1b" not in dumb


def test_keys_are_shown_to_those_who_ask(full: Shop) -> None:
    """Masked unless asked otherwise; a key that was not stored is said to be a digest."""
    full.finished("never-stored-key", keep_key=False)
    for arguments in (["ls"], ["ls", "--json"]):
        assert "completed-key-001" not in run(*arguments, store=full.url).out
        assert "completed-key-001" in run(*arguments, "--show-keys", store=full.url).out
    assert "digest" in run("ls", store=full.url).out


def test_a_long_key_is_shown_in_full(shop: Shop) -> None:
    """Where it does not fit the terminal, it goes on in the next line."""
    key = "".join(f"{n:03}" for n in range(85))
    shop.finished(key)
    screen = shown("ls", "--show-keys", store=shop.url)
    assert max(map(len, screen.lines)) <= 80
    assert "".join(line.split()[-1] for line in screen.lines[2:-1]) == key


@pytest.mark.parametrize(
    ("filters", "complaint"),
    [
        (["--path", "/a/*/b"], "a * before its end"),
        (["--older", "1h", "--younger", "5m"], "no record is older"),
        (["--limit", "9" * 30], "--limit"),
        (["--scope", "=acme"], "NAME=VALUE"),
    ],
)
def test_filters_that_could_never_match(shop: Shop, filters: list[str], complaint: str) -> None:
    """A mistake is said to be one: an empty list would hide it."""
    done = run("ls", *filters, store=shop.url)
    assert (done.code, done.out) == (2, "")
    assert complaint in done.err


def test_more_than_the_limit(full: Shop) -> None:
    """It says that there are more, and not as part of the data."""
    done = run("ls", "--limit", "2", store=full.url)
    assert len(done.out.splitlines()) == 3
    assert "more than 2 records" in done.err


def test_nothing(shop: Shop) -> None:
    """An empty list is not a failure, and says why it may be empty."""
    shop.finished("expired-key-0001", ago=2 * DAY, hold=0.0)
    done = run("ls", store=shop.url)
    assert (done.code, done.out) == (0, "")
    assert "no records" in done.err
    assert "Without filters" in run("ls", "--state", "failed", store=shop.url).err
    assert json.loads(run("ls", "--json", store=shop.url).out) == {"records": [], "more": False, "now": None}


def test_ids_are_those_of_the_log(full: Shop) -> None:
    """The first eight digits, as logs and events have them."""
    claim = full.abandoned("another-one-00001")
    assert identity(claim) in run("ls", store=full.url).out
