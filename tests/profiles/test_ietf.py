"""The profile `ietf`: draft-ietf-httpapi-idempotency-key-header-07, by its sections."""

import pytest

from retrysafe import profiles
from tests.profiles.conftest import Serve
from tests.profiles.service import Held, during


@pytest.mark.parametrize("key", ['"8e03978e-40d5-43dd-bc93-6894a57f9324"', '"k";v=1', '"a \\"b\\", c"'])
def test_quoted_keys(serve: Serve, key: str) -> None:
    """Section 2.1: an Item Structured Header whose value is a String; unknown parameters are ignored."""
    service = serve("ietf")
    assert [service.post(key=key).replayed for _ in range(2)] == [False, True]
    assert len(service.runs) == 1


@pytest.mark.parametrize("bare", ["8e03978e-40d5-43dd-bc93-6894a57f9324", "k", "42", "?1", ":aGk=:"])
def test_bare_keys(serve: Serve, bare: str) -> None:
    """Accepted, as one key with the quoted form; refused where only what the draft says may be sent."""
    service = serve("ietf")
    assert [service.post(key=key).replayed for key in (bare, f'"{bare}"')] == [False, True]
    strict = serve("ietf", wire=profiles.wire("ietf")._replace(strict_keys=True))
    refused = strict.post(key=bare)
    assert (refused.status, refused.code, len(strict.runs)) == (400, "key-invalid", 0)
    assert bare not in refused.document["detail"].split()
    assert strict.post(key=f'"{bare}"').status == 201
    page = strict.request("GET", "/idempotency", headers=[("Accept", "application/json")]).document
    assert "bare keys are refused" in page["key"]["format"]


@pytest.mark.parametrize("key", ["", '""', '"open', '"a"b', '"a", "b"', '"caf\xe9"', "a b"])
def test_malformed_keys(serve: Serve, key: str) -> None:
    """Section 2.7: 400, and nothing runs."""
    service = serve("ietf")
    reply = service.post(key=key)
    assert (reply.status, reply.code, len(service.runs)) == (400, "key-invalid", 0)


def test_a_missing_key(serve: Serve) -> None:
    """Section 2.7: 400 where a resource requires one, with a link to what it wants."""
    service = serve("ietf", required=True)
    reply = service.post()
    assert (reply.status, reply.code, len(service.runs)) == (400, "key-missing", 0)
    assert reply.document["type"].startswith("http://shop.test/idempotency#")


def test_in_flight(serve: Serve) -> None:
    """Section 2.7: 409 while the first one runs."""
    held = Held()
    service = serve("ietf", held)
    first, meanwhile, after = during(service, held, '"k"')
    assert (meanwhile.status, meanwhile.code) == (409, "in-flight")
    assert first.essence == after.essence
    assert len(service.runs) == 1


def test_another_request(serve: Serve) -> None:
    """Section 2.7: 422 for a key that was used with another payload."""
    service = serve("ietf")
    service.post(key='"k"', body=b"1")
    reply = service.post(key='"k"', body=b"2")
    assert (reply.status, reply.code, len(service.runs)) == (422, "key-reused", 1)
