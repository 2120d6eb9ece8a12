"""The profile `validation-api` on Django: every sentence of 000 that a client or an operator can observe.

By the numbers of the sentences.  The example's own tests (`examples/validation_service`) have jobs and
quotas.
"""

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.db.models import F
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client, override_settings
from django.urls import path
from django.views import View

from retrysafe.django import IdempotentMixin, guard, idempotent
from retrysafe.django.models import Record
from retrysafe.stores.admin import Query
from tests.django.shop.models import Order, Quota

KEY = "0b6f8f0c-54a9-4a2e-9d5f-0f6f0c8f4b1e"

gate = threading.Event()
begun = threading.Event()


@idempotent
def start(request: HttpRequest, pk: int) -> HttpResponse:
    """Launch a run, which counts against the organisation's quota."""
    organisation = request.headers["X-Organisation"]
    Order.objects.create(label=f"{organisation} {pk}")
    Quota.objects.filter(organisation=organisation).update(used=F("used") + 1)
    if request.GET.get("slow"):
        begun.set()
        assert gate.wait(30)
    return JsonResponse({"run": Order.objects.count()}, status=201)


class Cancel(IdempotentMixin, View):
    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        Order.objects.create(label=f"cancel {pk}")
        return JsonResponse({"cancelled": pk})


urlpatterns = [
    path("api/workflows/<int:pk>/start/", start, name="workflow-start"),
    path("api/workflows/<int:pk>/cancel/", Cancel.as_view(), name="workflow-cancel"),
]

START = "/api/workflows/7/start/"

SETTINGS = {
    "PROFILE": "validation-api",
    "ORGANISATION": "tests.django.signing.organisation_of",
    "EFFECTS": "database",
}


@pytest.fixture(autouse=True)
def configured() -> Iterator[None]:
    Quota.objects.all().delete()
    Quota.objects.create(organisation="acme")
    gate.clear()
    begun.clear()
    with override_settings(RETRYSAFE=SETTINGS):
        yield
    Quota.objects.all().delete()


def post(
    client: Client, url: str = START, key: str | None = KEY, organisation: str = "acme", body: str = "{}"
) -> Any:
    headers = {"X-Organisation": organisation} | ({} if key is None else {"Idempotency-Key": key})
    return client.post(url, body, content_type="application/json", headers=headers)


def test_a_retry(client: Client) -> None:
    """1 to 3, 12 to 14, 28: the original status and body, marked, with the first id; charged once."""
    first, again = post(client), post(client)
    assert (first.status_code, first.content) == (again.status_code, again.content)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.headers["Original-Request-Id"] == first.headers["X-Request-Id"]
    assert Quota.objects.get().used == Order.objects.count() == 1


@pytest.mark.parametrize(("key", "status"), [("k" * 255, 201), ("k" * 256, 400)])
def test_the_longest_key(client: Client, key: str, status: int) -> None:
    """4: at most 255 characters."""
    assert post(client, key=key).status_code == status


def test_whose_key_it_is(client: Client) -> None:
    """5, 6: (organisation, endpoint), which is the route's name: another workflow is a mismatch."""
    assert post(client).status_code == 201
    assert post(client, organisation="globex").status_code == 201, "another organisation"
    assert post(client, "/api/workflows/7/cancel/").status_code == 200, "another endpoint"
    assert post(client, "/api/workflows/8/start/").status_code == 422, "the same endpoint, another workflow"
    scopes = {tuple(sorted(record.scope_parts.items())) for record in Record.objects.all()}
    assert scopes == {
        (("endpoint", "workflow-start"), ("organisation", "acme")),
        (("endpoint", "workflow-start"), ("organisation", "globex")),
        (("endpoint", "workflow-cancel"), ("organisation", "acme")),
    }


def test_an_unknown_organisation(client: Client) -> None:
    """5: never a shared scope."""
    response = client.post(START, headers={"Idempotency-Key": KEY})
    assert (response.status_code, response.json()["code"]) == (400, "principal-required")


def test_without_a_key(client: Client) -> None:
    """7 to 9, 24: as without the decorator, twice; later a setting requires keys."""
    for number in (1, 2):
        assert post(client, key=None).json() == {"run": number}
    with override_settings(RETRYSAFE=SETTINGS | {"REQUIRED": True}):
        assert post(client, key=None).status_code == 400
    assert Order.objects.count() == 2


def test_in_flight(client: Client, each_database: str) -> None:
    """10, 11: 409 at once, and the replay when it is done."""
    if each_database != "sqlite":
        Quota.objects.create(organisation="acme")
    responses: list[Any] = []

    def first() -> None:
        mine = Client(headers={"Authorization": "Bearer alice"})
        responses.append(post(mine, f"{START}?slow=1"))
        connections.close_all()

    thread = threading.Thread(target=first)
    thread.start()
    assert begun.wait(30)
    meanwhile = post(client, f"{START}?slow=1")
    gate.set()
    thread.join()
    assert (meanwhile.status_code, meanwhile.json()["code"]) == (409, "in-flight")
    assert int(meanwhile.headers["Retry-After"]) >= 1
    assert post(client, f"{START}?slow=1").content == responses[0].content
    assert Order.objects.count() == 1


def test_fifty_at_once(each_database: str) -> None:
    """1, 28: one run, one unit of the quota."""
    if each_database != "sqlite":
        Quota.objects.create(organisation="acme")
    statuses: list[int] = []

    def send() -> None:
        statuses.append(post(Client(headers={"Authorization": "Bearer alice"})).status_code)
        connections.close_all()

    with override_settings(ROOT_URLCONF=__name__):
        threads = [threading.Thread(target=send) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert set(statuses) <= {201, 409}
    assert Quota.objects.get().used == Order.objects.count() == 1


def test_another_body(client: Client) -> None:
    """15: 422, and the first one's record is as it was."""
    first = post(client)
    assert post(client, body='{"other": true}').status_code == 422
    assert post(client).content == first.content


@pytest.mark.parametrize("hours", [None, 1, 0.5])
def test_retention(client: Client, hours: float | None) -> None:
    """16, 17, 26, 27: one row for 24 hours, or for as many as `IDEMPOTENCY_KEY_TTL_HOURS` says."""
    said = {} if hours is None else {"IDEMPOTENCY_KEY_TTL_HOURS": hours}
    with override_settings(**said):
        post(client)
        record = Record.objects.get()
    kept = record.expires_at - record.created_at
    assert abs(kept - timedelta(hours=24 if hours is None else hours)) < timedelta(seconds=1)
    assert bytes(record.body) == b'{"run": 1}'


@pytest.mark.parametrize("hours", [0, -1, "soon", True])
def test_a_retention_that_is_none(hours: object) -> None:
    """17: said when the project starts, with what was found and what is expected."""
    from retrysafe.errors import ConfigurationError

    with (
        override_settings(IDEMPOTENCY_KEY_TTL_HOURS=hours),
        pytest.raises(ConfigurationError, match=r"IDEMPOTENCY_KEY_TTL_HOURS is .*expected a number of hours"),
    ):
        guard()


def test_cleanup(client: Client) -> None:
    """18, 19, 29: a command, which a scheduler runs daily; nothing else is needed."""
    post(client)
    Record.objects.update(expires_at=F("created_at"), held_until=F("created_at"))
    printed = StringIO()
    call_command("cleanup_idempotency_keys", dry_run=True, stdout=printed)
    assert Record.objects.count() == 1
    assert "1" in printed.getvalue()
    call_command("cleanup_idempotency_keys", stdout=StringIO())
    assert Record.objects.count() == 0


def test_decorator_and_mixin(client: Client) -> None:
    """20, 21: both, and a model that is asked by the ORM."""
    for url in (START, "/api/workflows/7/cancel/"):
        post(client, url)
        assert post(client, url).headers["Idempotent-Replayed"] == "true"
    assert Record.objects.filter(target=START, state="completed").count() == 1


def test_every_mutating_endpoint_is_protected() -> None:
    """22, 30: a command for CI, which fails for one that is not."""
    with override_settings(ROOT_URLCONF=__name__):
        call_command("idempotency_routes", fail_unprotected=True, stdout=StringIO())


def test_documentation(client: Client) -> None:
    """23, 31: the service's own page shows the key and the headers of replays, for people and for agents."""
    page = client.get("/idempotency", headers={"Accept": "text/markdown"}).content.decode()
    for word in (
        "Idempotency-Key",
        "Idempotent-Replayed",
        "Original-Request-Id",
        "/api/workflows/{pk}/start/",
        "24 h",
    ):
        assert word in page, word


def test_an_original_request_id_leads_to_its_record(client: Client) -> None:
    """25: what support is told is what an operator looks for."""
    post(client)
    named = post(client).headers["Original-Request-Id"]
    assert Record.objects.get(request_id=named).target == START
    admin = guard().store.open_admin()
    assert [found.record.target for found in admin.list(Query(request_id=named))] == [START]
    admin.close()


def test_when_keys_can_be_required(client: Client) -> None:
    """32: the share of calls without a key, by route."""
    before = guard().counts()
    for key in ("a", "b", None):
        post(client, key=key)
    counts = {
        (one.verdict, one.route): number - before.get(one, 0)
        for one, number in guard().counts().items()
        if number != before.get(one, 0)
    }
    route = "/api/workflows/{pk}/start/"
    assert counts == {("completed", route): 2, ("keyless", route): 1}
    guard().close()  # which stores them
    printed = StringIO()
    call_command("idempotency_stats", json=True, stdout=printed)
    assert route in json.dumps(json.loads(printed.getvalue()))
