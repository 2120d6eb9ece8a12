"""`retrysafe stats`."""

import json

import pytest

from retrysafe._core.model import Response
from tests.cli.records import JSON, Shop
from tests.cli.terminal import run, shown

VERDICTS = {"completed": 60, "replayed": 20, "in-flight": 10, "key-reused": 5, "failed": 5}


@pytest.fixture
def full(shop: Shop) -> Shop:
    shop.abandoned("abandoned-old-0001", ago=7200)
    shop.running("running-key-00001", ago=60)
    shop.finished("completed-key-001", Response(201, JSON, b"x" * 1000))
    shop.finished("completed-key-002", target="/refunds", scope=(("tenant", "zeta"),))
    shop.at(0)
    keeper = shop.store.open_keeper()
    keeper.count(VERDICTS)  # which also removes what has expired
    keeper.close()
    shop.expired(3)
    shop.at(0)
    return shop


def test_json(full: Shop) -> None:
    """Numbers, seconds and times by stable names; the rate of duplicates is what it says it is."""
    done = run("stats", "--json", store=full.url)
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert document["records"] == {
        "total": 4,
        "abandoned": 1,
        "waiting": 0,
        "in_progress": 1,
        "completed": 2,
        "failed": 0,
    }
    assert (document["oldest_waiting"], document["by_source"]) == (None, [])
    assert (document["bytes"], document["expired"]) == (1014, 3)
    assert document["oldest_abandoned"]["age"] == pytest.approx(7200, abs=60)
    assert document["oldest_in_progress"]["age"] == pytest.approx(60, abs=60)
    assert document["verdicts"] == VERDICTS
    assert (document["counted"], document["duplicates"], document["duplicate_rate"]) == (100, 35, 0.35)
    assert document["counted_since"] is not None
    [first, second] = document["by_route"]
    assert (first["action"], first["target"], first["records"]["total"]) == ("POST", "/payments", 3)
    assert second["bytes"] == 14
    assert [one["scope"] for one in document["by_scope"]] == [
        {"tenant": "acme", "user": "42"},
        {"tenant": "zeta"},
    ]


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_on_a_terminal(full: Shop, columns: int) -> None:
    """The same numbers, within the width."""
    screen = shown("stats", store=full.url, columns=columns)
    assert max(map(len, screen.lines)) <= columns
    text = " ".join(screen.text.split())
    for piece in (
        "abandoned 1 the oldest 2 hours ago",
        "duplicates 35 35.0% of requests with a key",
        "expired 3",
        "POST /refunds",
    ):
        assert piece in text


def test_without_a_terminal(full: Shop) -> None:
    """Plain text; of routes and scopes as many as were asked for."""
    done = run("stats", "--groups", "1", store=full.url)
    assert (done.code, done.err) == (0, "")
    assert "\x1b" not in done.out
    assert "/refunds" not in done.out
    assert "BY SCOPE" in done.out


def test_nothing_was_counted(shop: Shop) -> None:
    """No requests: no rate, instead of a division by zero."""
    shop.abandoned()
    document = json.loads(run("stats", "--json", store=shop.url).out)
    assert (document["duplicate_rate"], document["counted_since"]) == (None, None)
    assert "None counted yet" in run("stats", store=shop.url).out


def test_requests_without_a_key_are_no_part_of_the_rate(shop: Shop) -> None:
    """They are counted, but cannot be duplicates of anything."""
    shop.at(0)
    keeper = shop.store.open_keeper()
    keeper.count({"completed": 3, "replayed": 1, "keyless": 96})
    keeper.close()
    document = json.loads(run("stats", "--json", store=shop.url).out)
    assert (document["counted"], document["duplicate_rate"]) == (100, 0.25)
