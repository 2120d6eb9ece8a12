"""The profile `validation-api`: what is wire or policy of its sentences, by their numbers.

The decorator, the mixin and the management command are Django's, and tested with it.
"""

import pytest

from retrysafe._core.model import Request
from retrysafe.stores.admin import Query
from tests.profiles.conftest import Serve
from tests.profiles.service import Held, during

KEY = "0b6f8f0c-54a9-4a2e-9d5f-0f6f0c8f4b1e"
START = "/api/workflows/7/start/"


def organisation_and_endpoint(request: Request) -> dict[str, str] | None:
    organisation = request.header(b"x-organisation")
    return {"organisation": organisation.decode(), "endpoint": request.path} if organisation else None


def test_replays(serve: Serve) -> None:
    """000-1 to 000-3, 000-12 to 000-14: status and body, the marker, and the id of the first request."""
    service = serve("validation-api")
    first, again = (service.post(START, key=KEY) for _ in range(2))
    assert first.essence == again.essence
    assert (first.replayed, again.replayed) == (False, True)
    assert again.header("Original-Request-Id") == first.header("X-Request-Id")
    assert again.header("X-Request-Id") != first.header("X-Request-Id")
    assert len(service.runs) == 1


@pytest.mark.parametrize(("key", "status"), [("k" * 255, 201), ("k" * 256, 400)])
def test_the_longest_key(serve: Serve, key: str, status: int) -> None:
    """000-4: at most 255 characters."""
    service = serve("validation-api")
    assert service.post(START, key=key).status == status
    assert len(service.runs) == (status == 201)


def test_organisations_and_endpoints(serve: Serve) -> None:
    """000-5, 000-6: the same key in another organisation, or at another endpoint, is another key."""
    service = serve("validation-api", scope=organisation_and_endpoint)
    for _ in range(2):
        for organisation in ("acme", "globex"):
            for path in (START, "/api/workflows/8/start/"):
                service.post(path, key=KEY, headers=[("X-Organisation", organisation)])
    assert len(service.runs) == 4


def test_optional_then_required(serve: Serve) -> None:
    """000-8, 000-9, 000-24: without a header as usual, and twice; a later `required` turns that away."""
    service = serve("validation-api")
    assert [service.post(START).status for _ in range(2)] == [201, 201]
    assert len(service.runs) == 2
    strict = serve("validation-api", required=True)
    assert (strict.post(START).status, strict.post(START, key=KEY).status) == (400, 201)


def test_in_flight(serve: Serve) -> None:
    """000-10, 000-11: 409 while the first one runs, without waiting for it."""
    held = Held()
    service = serve("validation-api", held)
    first, meanwhile, after = during(service, held, KEY, path=START)
    assert (meanwhile.status, meanwhile.code) == (409, "in-flight")
    assert after.replayed
    assert first.essence == after.essence


def test_another_body(serve: Serve) -> None:
    """000-15: 422."""
    service = serve("validation-api")
    service.post(START, key=KEY, body=b"1")
    assert service.post(START, key=KEY, body=b"2").status == 422
    assert len(service.runs) == 1


@pytest.mark.parametrize("hours", [None, "1"])
def test_retention(serve: Serve, hours: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """000-16, 000-17, 000-26: 24 hours, or what `IDEMPOTENCY_KEY_TTL_HOURS` says."""
    if hours is not None:
        monkeypatch.setenv("IDEMPOTENCY_KEY_TTL_HOURS", hours)
    service = serve("validation-api")
    service.post(START, key=KEY)
    service.clock.now += float(hours or 24) * 3600 - 1
    assert service.post(START, key=KEY).replayed
    service.clock.now += 2
    assert not service.post(START, key=KEY).replayed


def test_the_original_id_leads_to_the_record(serve: Serve) -> None:
    """000-25: what a replay names is what an operator finds."""
    service = serve("validation-api")
    service.post(START, key=KEY)
    original = service.post(START, key=KEY).header("Original-Request-Id")
    (seen,) = service.store.open_admin().find(Query(request_id=original), 10)
    assert seen.record.key == KEY


def test_documented(serve: Serve) -> None:
    """000-23, 000-31: the service's own page names the key's header and those of replays."""
    service = serve("validation-api")
    page = service.request("GET", "/idempotency", headers=[("Accept", "application/json")]).document
    assert page["key"]["header"] == "Idempotency-Key"
    assert {"Idempotent-Replayed", "Original-Request-Id"} <= page["headers"].keys()
