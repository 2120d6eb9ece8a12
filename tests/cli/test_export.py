"""`retrysafe export`."""

import base64
import json
import stat

import pytest

from retrysafe._core.model import Response
from tests.cli.records import ACME, JSON, Shop
from tests.cli.terminal import run


def test_every_record_is_a_line(shop: Shop) -> None:
    """Complete: keys, headers and bodies, expired or not; a body that is not text in base64."""
    shop.expired(1)
    shop.finished("text", Response(201, JSON, '{"é": 1}'.encode()))
    shop.finished("bytes", Response(200, (), b"\xff\x00"))
    running = shop.running("running")
    done = run("export", store=shop.url)
    assert done.code == 0
    assert done.err == "Exported 4 records.\n"
    lines = {line["key"]: line for line in map(json.loads, done.out.splitlines())}
    assert set(lines) == {"expired-000000", "text", "bytes", "running"}
    assert lines["text"]["response"] == {
        "status": 201,
        "headers": [["content-type", "application/json"]],
        "size": 9,
        "body": '{"é": 1}',
    }
    assert base64.b64decode(lines["bytes"]["response"]["body_base64"]) == b"\xff\x00"
    assert lines["running"]["response"] is None
    assert lines["running"]["id"] == running.id.hex()
    assert lines["running"]["scope"] == [list(part) for part in ACME]
    assert list(lines["running"]) == [
        "id", "door", "scope", "key", "action", "target", "request_id", "correlation_id", "details",
        "fingerprint", "state", "mode", "attempt", "checkpointed", "deliveries", "delivery_times",
        "created_at", "updated_at", "completed_at", "seen_at", "lease_until", "held_until", "expires_at",
        "retention_from", "omitted", "response",
    ]  # fmt: skip


def test_what_is_about_to_be_purged(shop: Shop) -> None:
    """Into a file of its owner's, before a purge removes it."""
    shop.expired(3)
    shop.finished("fresh")
    file = shop.path.parent / "archive.jsonl"
    done = run("export", "--expiring", "1h", "--no-bodies", "--output", str(file), store=shop.url)
    assert (done.code, done.out) == (0, "")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted(line["key"] for line in lines) == [f"expired-{n:06}" for n in range(3)]
    assert all("body" not in line["response"] for line in lines)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert run("purge", store=shop.url).out == "Removed 3 expired records; 0 left.\n"


@pytest.mark.parametrize(
    ("name", "complaint"), [("keys.db", "exists"), ("missing/archive.jsonl", "cannot be created: No such")]
)
def test_no_file_is_overwritten(shop: Shop, name: str, complaint: str) -> None:
    """It says why, and what to do."""
    shop.finished("key")
    before = shop.path.read_bytes()
    done = run("export", "--output", str(shop.path.parent / name), store=shop.url)
    assert (done.code, done.out) == (1, "")
    assert complaint in done.err
    assert "Nothing was written" in done.err
    assert shop.path.read_bytes() == before


def test_by_door(shop: Shop) -> None:
    """Only what came through it."""
    shop.finished("request")
    shop.finished("job", door="callback")
    done = run("export", "--door", "callback", store=shop.url)
    assert [json.loads(line)["key"] for line in done.out.splitlines()] == ["job"]
