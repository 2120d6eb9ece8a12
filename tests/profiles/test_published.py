"""What each profile publishes is what its service does: each claim is put to the test by a request."""

from typing import Any

import pytest

from retrysafe import profiles
from retrysafe.testing.adapters.client import Reply
from tests.profiles.conftest import Serve
from tests.profiles.service import Answer, Call, Held, Service, charge, during

PROFILES = list(profiles.PROFILES)
VARIANTS: list[dict[str, Any]] = [{}, {"failed": "retry"}, {"failed": "conflict"}, {"no_store": True}]


def published(service: Service) -> Any:
    return service.request("GET", "/idempotency", headers=[("Accept", "application/json")]).document


def shape(value: Any) -> Any:
    """A body without its texts, which depend on the occurrence."""
    if isinstance(value, dict):
        return {name: found if name in ("type", "code") else shape(found) for name, found in value.items()}
    return type(value)


def is_the_problem(reply: Reply, code: str, said: Any) -> bool:
    """Whether it has the published status, and our code or the form that is published instead."""
    entry = said["problems"][code]
    if reply.status != entry["status"]:
        return False
    return shape(reply.document) == shape(entry["body"]) if "body" in entry else reply.code == code


@pytest.mark.parametrize("profile", PROFILES)
def test_problems(serve: Serve, profile: str) -> None:
    """Each refusal has the published status and the published form."""
    held = Held()
    service = serve(profile, held, required=True)
    said = published(service)
    _, meanwhile, _ = during(service, held, "key-of-a-request")
    assert is_the_problem(meanwhile, "in-flight", said)
    assert meanwhile.header("Retry-After") is not None
    assert is_the_problem(service.post(key="key-of-a-request", body=b"other"), "key-reused", said)
    assert is_the_problem(service.post(key="k" * 256), "key-invalid", said)
    assert is_the_problem(service.post(), "key-missing", said)
    assert is_the_problem(service.post(key="k", user=None), "principal-required", said)


@pytest.mark.parametrize("profile", PROFILES)
def test_headers(serve: Serve, profile: str) -> None:
    """Those of a replay, and no others of ours; those that only some profiles send, too."""
    service = serve(profile)
    said, wire = published(service), service.guard.wire
    service.post(key="k")
    again = service.post(key="k")
    ours = {name for name, _ in again.fields} - {"content-type", "content-length"}
    assert ours <= {name.lower() for name in said["headers"]}
    assert again.header(wire.replayed_header) == "true"
    assert f"{wire.replayed_header}: true" in said["how"][1]
    assert (again.header(wire.key_header) == "k") is (wire.key_header in said["headers"])


@pytest.mark.parametrize("profile", PROFILES)
def test_coverage(serve: Serve, profile: str) -> None:
    """The methods and the paths that are published take keys, and others do not."""
    service = serve(profile)
    said = published(service)
    listed = [entry["path"] for entry in said["routes"]] or ["/*"]
    covered = listed[0].replace("*", "orders")
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        service.request(method, covered, key=f"by-{method}")
        again = service.request(method, covered, key=f"by-{method}")
        is_replayed = again.header(service.guard.wire.replayed_header) == "true"
        assert is_replayed is (method in said["key"]["methods"])
    service.post("/elsewhere", key="k")
    elsewhere = service.post("/elsewhere", key="k")
    assert (elsewhere.header(service.guard.wire.replayed_header) is None) is (said["routes"] != [])


@pytest.mark.parametrize("profile", PROFILES)
def test_retention(serve: Serve, profile: str) -> None:
    """To the second."""
    service = serve(profile)
    seconds = published(service)["retention"]["seconds"]
    service.post(key="k")
    service.clock.now += seconds - 1
    service.post(key="k")
    assert len(service.runs) == 1
    service.clock.now += 1
    service.post(key="k")
    assert len(service.runs) == 2


async def fails_first(call: Call) -> Answer:
    return Answer(502, b"{}") if call.number == 1 else await charge(call)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("profile", PROFILES)
def test_what_to_do_about_a_failure(serve: Serve, profile: str, variant: dict[str, Any]) -> None:
    """A retry gets what is published: the same failure, a problem, or another run."""
    service = serve(profile, fails_first, **variant)
    said = published(service)
    row = said["responses"]["Any other 5xx"]
    first, again = (service.post(key="k") for _ in range(2))
    hint = service.guard.wire.should_retry_headers[0]
    assert f"None, or a 5xx without {hint}" in said["responses"]
    assert first.header(hint) is not None  # so it is not taken for one of a proxy
    if "runs it again" in row["meaning"]:
        assert (first.header(hint), again.status, len(service.runs)) == ("true", 201, 2)
    elif "previously-failed" in row["meaning"]:
        assert is_the_problem(again, "previously-failed", said)
        assert (first.header(hint), len(service.runs)) == ("false", 1)
    else:
        assert "gets the same response" in row["meaning"]
        assert (first.header(hint), again.status, len(service.runs)) == ("false", 502, 1)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("status", [401, 403, 408, 413, 425, 429, 400, 404, 409, 301, 204, 200])
def test_what_is_stored(serve: Serve, profile: str, status: int) -> None:
    """By its status, as the table says."""

    async def answer(call: Call) -> Answer:
        return Answer(status, b"" if status == 204 else b"{}")

    service = serve(profile, answer)
    [row] = [name for name in published(service)["responses"] if name.startswith("401")]
    for _ in range(2):
        service.post(key="k")
    assert len(service.runs) == (2 if str(status) in row.partition(" or")[0] else 1)


def test_bodies_that_are_not_stored(serve: Serve) -> None:
    """Status and headers, and the header by which a client knows."""
    service = serve("agents", no_store=True)
    row = published(service)["responses"]["Any with Idempotency-Body: omitted"]
    service.post(key="k")
    again = service.post(key="k")
    assert (again.status, again.body, again.header("Idempotency-Body")) == (201, b"", "omitted")
    assert "replay without its body" in row["meaning"]
