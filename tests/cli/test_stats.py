"""`retrysafe stats`."""

import json

import pytest

from retrysafe._core.model import Response
from retrysafe.testing.stores.harness import ended
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
    keeper.count(ended(VERDICTS))  # which also removes what has expired
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
    keeper.count(ended({"completed": 3, "replayed": 1, "keyless": 96}))
    keeper.close()
    document = json.loads(run("stats", "--json", store=shop.url).out)
    assert (document["counted"], document["duplicate_rate"]) == (100, 0.25)


@pytest.fixture
def adopting(shop: Shop) -> Shop:
    """Some clients send keys, others do not yet: their last call is a day old, or three."""
    for days, verdicts, route in (
        (3, {"completed": 5, "keyless": 20}, "/payments/{id}"),
        (3, {"key-missing": 1, "completed": 1}, "/old"),
        (1, {"keyless": 2, "completed": 3}, "/orders"),
        (0, {"completed": 70, "replayed": 5}, "/payments/{id}"),
        (0, {"completed": 400}, "/refunds"),
    ):
        shop.at(days * 86400.0)
        keeper = shop.store.open_keeper()
        keeper.count(ended(verdicts, route))
        keeper.close()
    keeper = shop.store.open_keeper()
    keeper.count(ended({"keyless": 1}, "", "callback", "jobs"))
    keeper.count(ended({"completed": 1}, "charge", "operation"))
    keeper.close()
    shop.at(0)
    return shop


def test_calls_without_a_key(adopting: Shop) -> None:
    """By place, those first where most of them are; how many, which share, and when the last one was."""
    document = json.loads(run("stats", "--json", store=adopting.url).out)
    assert (document["counted"], document["without_key"]) == (509, 24)
    assert document["share_without_key"] == round(24 / 509, 6)
    assert [(one["door"], one["route"], one["source"], one["without_key"]) for one in document["calls"]] == [
        ("request", "/payments/{id}", "", 20),
        ("request", "/orders", "", 2),
        ("request", "/old", "", 1),
        ("callback", "", "jobs", 1),
        ("request", "/refunds", "", 0),
        ("operation", "charge", "", 0),
    ]
    payments, refunds = document["calls"][0], document["calls"][4]
    assert payments["verdicts"] == {"completed": 75, "keyless": 20, "replayed": 5}
    assert (payments["counted"], payments["share_without_key"], payments["duplicates"]) == (100, 0.2, 5)
    assert payments["last_without_key"] == payments["counted_since"] < document["now"]
    assert (refunds["share_without_key"], refunds["last_without_key"]) == (0.0, None)


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_calls_without_a_key_on_a_terminal(adopting: Shop, columns: int) -> None:
    """The number and the time of the last one are shown in any width."""
    screen = shown("stats", store=adopting.url, columns=columns)
    assert max(map(len, screen.lines)) <= columns
    rows = {
        line.split()[0]: line.split() for line in screen.lines if line.startswith(("/", "jobs", "charge"))
    }
    assert rows["/orders"][1:3] == ["5", "2"]
    assert "24h ago" in " ".join(rows["/orders"])
    assert "3d ago" in " ".join(rows["/payments/{id}"])
    assert rows["jobs"][1] == "(callback)"
    assert rows["charge"][1] == "(operation)"
    assert ("40.0%" in rows["/orders"]) == (columns > 60)
    assert "without a key 24 4.7% of all" in " ".join(screen.text.split())


def test_calls_of_as_many_routes_as_were_asked_for(adopting: Shop) -> None:
    """Those that a team has to look at; the sums are of all."""
    document = json.loads(run("stats", "--json", "--groups", "2", store=adopting.url).out)
    assert [one["route"] for one in document["calls"]] == ["/payments/{id}", "/orders"]
    assert document["without_key"] == 24
    assert "/refunds" not in run("stats", "--groups", "2", store=adopting.url).out
