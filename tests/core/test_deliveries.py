"""How often a key was used, from the requests to the record; and what its retention is counted from."""

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest

from retrysafe import Guard, scopes, stores
from retrysafe._core.model import Record
from retrysafe._runtime import leases
from retrysafe.policy import Options
from retrysafe.stores.admin import Query
from retrysafe.wsgi import Middleware
from tests.core.wsgi_calls import TEXT, Served, an_environ


class Shop:
    """A guarded application on a file, whose records are read once it is closed."""

    def __init__(self, folder: Path, options: Options) -> None:
        self._url = f"sqlite:///{folder / 'keys.db'}"
        options["scope"] = scopes.header("X-Tenant")
        self.guard = Guard(self._url, **options)
        self._app = Middleware(self._pay, self.guard)
        self.status = "201 Created"

    def _pay(self, _: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response(self.status, TEXT)
        return [b"paid"]

    def post(self, key: str, body: bytes = b"") -> str:
        return Served(self._app, an_environ(body, key=key)).line

    def records(self) -> dict[str | None, Record]:
        self.guard.close()  # which stores what was counted
        with closing(stores.open(self._url)) as store, closing(store.open_admin()) as admin:
            return {sighting.record.key: sighting.record for sighting in admin.list(Query())}


def test_requests_with_a_key_are_counted(tmp_path: Path) -> None:
    """Replays are, with their times; a request that the key was not for is not, and neither is the first."""
    shop = Shop(tmp_path, {})
    for _ in range(4):
        assert shop.post("often") == "201 Created"
    shop.post("once")
    assert shop.post("once", b"something else").startswith("422")
    records = shop.records()
    often, once = records["often"], records["once"]
    assert (often.deliveries, len(often.delivery_times)) == (4, 3)
    assert often.seen_at is not None
    assert often.seen_at >= often.created_at
    assert (once.deliveries, once.seen_at) == (1, None)


def test_an_attempt_after_a_failure_is_counted(tmp_path: Path) -> None:
    """It ran again, and was asked for again."""
    shop = Shop(tmp_path, {"effects": "repeatable"})
    shop.status = "500 Internal Server Error"
    shop.post("again")
    shop.status = "201 Created"
    assert shop.post("again") == "201 Created"
    record = shop.records()["again"]
    assert (record.attempt, record.deliveries) == (2, 2)


def test_of_too_many_keys_at_once_some_are_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that replays a lot does not write as much; those that it counts, it counts whole."""
    monkeypatch.setattr(leases, "_DELIVERIES", 2)
    shop = Shop(tmp_path, {})
    for key in "abcabcabc":
        shop.post(key)
    assert {key: record.deliveries for key, record in shop.records().items()} == {"a": 3, "b": 3, "c": 1}


@pytest.mark.parametrize("retention_from", ["creation", "update"])
def test_what_the_retention_is_counted_from(tmp_path: Path, retention_from: str) -> None:
    """As the guard was told; the record has it, too, for what is done to it later."""
    shop = Shop(tmp_path, {"retention": "1h", "retention_from": retention_from})  # type: ignore[typeddict-item]
    shop.post("key")
    record = shop.records()["key"]
    assert record.retention_from == retention_from
    began = record.created_at if retention_from == "creation" else record.updated_at
    assert record.expires_at == pytest.approx(began + 3600.0, abs=1e-6)
    assert record.updated_at > record.created_at
