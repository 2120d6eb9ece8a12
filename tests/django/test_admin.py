"""The admin site: what is found, shown and hidden, who may do what, and what an intervention changes."""

import contextlib
import html
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import path

from retrysafe._core.model import Claim, Response
from retrysafe.django.admin import register
from retrysafe.django.admin.rows import sighting_of, with_standing
from retrysafe.django.models import AuditEntry, Record, RouteCount, Verdict
from retrysafe.django.settings import close_guards, guard
from retrysafe.stores.admin import Note, Query
from tests.cli.records import DAY, JSON, MySQLShop, PostgresShop, Shop

own_site = admin.AdminSite("operations")
register(own_site)

urlpatterns = [path("admin/", admin.site.urls), path("ops/", own_site.urls)]

LIST = "/admin/retrysafe/record/"
AUDIT = "/admin/retrysafe/auditentry/"
SECRETS = Response(
    201,
    (*JSON, (b"x-order-secret", b"sk_live_51")),
    b'{"order": 7, "password": "hunter2", "card": {"number": "4111111111111111"}}',
)


@pytest.fixture
def shop(request: pytest.FixtureRequest, each_database: str) -> Iterator[Shop]:
    """Records of any age, in Django's database."""
    if each_database == "sqlite":
        shop = Shop(Path(settings.DATABASES["default"]["NAME"]))
    elif each_database == "mariadb":
        shop = MySQLShop(request.getfixturevalue("kept_on_mariadb"))
    else:
        shop = PostgresShop(request.getfixturevalue("database"))
    with contextlib.closing(shop):
        yield shop


@pytest.fixture
def on_sqlite() -> Iterator[Shop]:
    """The same where the database makes no difference."""
    with contextlib.closing(Shop(Path(settings.DATABASES["default"]["NAME"]))) as shop:
        yield shop


Signed = Callable[..., Client]


@pytest.fixture
def sign_in() -> Iterator[Signed]:
    """A client of a user of the staff with these permissions; without a name of one, of a superuser."""

    def signed(*permissions: str, name: str = "olga") -> Client:
        if permissions:
            user = User.objects.create_user(name, is_staff=True)
            user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        else:
            user = User.objects.create_superuser(name)
        client = Client()
        client.force_login(user)
        return client

    with override_settings(ROOT_URLCONF=__name__):
        yield signed
    close_guards()  # which add what they counted
    for model in (User, RouteCount, Verdict):
        model.objects.all().delete()


def text_of(response: Any) -> str:
    """What the page says, without its markup."""
    page = re.sub(r"<(script|style).*?</\1>", "", response.content.decode(), flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def listed(response: Any) -> list[str]:
    """The records of a list, in its order."""
    assert response.status_code == 200, response.content
    return re.findall(r'<th class="field-record"><a href="[^"]*/([0-9a-f]{64})/', response.content.decode())


def ids(*claims: Claim) -> list[str]:
    return [claim.id.hex() for claim in claims]


def page_of(claim: Claim) -> str:
    return f"{LIST}{claim.id.hex()}/change/"


def seen_in(response: Any) -> str:
    """What a confirmation says was seen."""
    [found] = re.findall(r'name="seen" value="([^"]*)"', response.content.decode())
    return str(found)


def select(client: Client, act: str, *claims: Claim, **more: Any) -> Any:
    given = {"action": act, "_selected_action": ids(*claims), **more}
    return client.post(LIST, given, follow=True)


def confirm(client: Client, act: str, claim: Claim, **given: str) -> Any:
    """Ask for the confirmation on the page of a record, and send it."""
    asked = client.get(f"{LIST}{claim.id.hex()}/{act}/", follow=True)
    return client.post(f"{LIST}{act}/", {"seen": seen_in(asked), **given}, follow=True)


def standing(claim: Claim) -> str | None:
    row = with_standing(Record.objects.filter(pk=claim.id.hex())).first()
    return None if row is None else str(row.standing)


def messages_of(response: Any) -> list[str]:
    [told] = re.findall(r'<ul class="messagelist">(.*?)</ul>', response.content.decode(), re.DOTALL) or [""]
    return [html.unescape(one) for one in re.findall(r"<li[^>]*>(.*?)</li>", told, re.DOTALL)]


# --- the list


def some_of_each(shop: Shop) -> dict[str, Claim]:
    made = {
        "old": shop.abandoned("pay-old-000001", ago=4 * 3600.0, request_id="req-old"),
        "abandoned": shop.abandoned("pay-aba-000001", ago=300.0, target="/payments/7"),
        "waiting": shop.delivered("evt-waiting-1", ago=200.0),
        "running": shop.running("pay-run-000001", ago=6.0, target="/orders", scope=(("tenant", "zeta"),)),
        "completed": shop.finished("pay-com-000001", ago=100.0, action="PATCH"),
        "failed": shop.finished("pay-fai-000001", Response(500), state="failed", ago=50.0),
        "tx": shop.abandoned("pay-txm-000001", ago=250.0, mode="tx"),
        "operation": shop.finished(
            "charge-0000001", ago=90.0, door="operation", action="charge", target="o-1"
        ),
    }
    [made["expired"]] = shop.expired(1)
    return made


def test_the_list_says_how_each_stands(shop: Shop, sign_in: Signed) -> None:
    """As the command line says it, by the store's clock; what has expired is not listed unless asked for."""
    made = some_of_each(shop)
    client = sign_in()
    with contextlib.closing(guard().store.open_admin()) as store:
        expected = {one.record.id.hex(): one.standing for one in store.list(Query())}
    assert set(expected.values()) == {"abandoned", "waiting", "in_progress", "completed", "failed"}
    found = client.get(LIST)
    assert set(listed(found)) == set(expected)
    rows = {row.pk: row for row in with_standing(Record.objects.all())}
    assert {id: rows[id].standing for id in expected} == expected
    for word in ("abandoned", "waiting", "in progress", "completed", "failed"):
        assert f">{word}</span>" in found.content.decode()
    for one in set(expected.values()):
        wanted = {id for id, standing in expected.items() if standing == one}
        assert set(listed(client.get(LIST, {"standing": one}))) == wanted
    assert listed(client.get(LIST, {"standing": "expired"})) == ids(made["expired"])
    assert listed(client.get(LIST, {"standing": "abandoned"})) == ids(
        made["old"], made["abandoned"], made["tx"]
    )


def test_rows_are_read_as_the_store_reads_them(shop: Shop) -> None:
    """Every field, the times among them, is what the command line would see."""
    some_of_each(shop)
    with contextlib.closing(guard().store.open_admin()) as store:
        expected = {one.record.id: one for one in store.find(Query())}
    for row in with_standing(Record.objects.exclude(state="gone")):
        found = sighting_of(row, body=True)
        assert found is not None
        if row.standing == "expired":
            continue
        seen = expected.pop(found.record.id)
        assert found._replace(now=0, record=_rounded(found.record), due_at=0) == seen._replace(
            now=0, record=_rounded(seen.record), due_at=0
        )
        assert abs(found.now - seen.now) < 60
        assert (found.due_at is None) == (seen.due_at is None)
    assert expected == {}


def _rounded(record: Any) -> Any:
    # A datetime has microseconds, and a number of seconds a little more.
    times = {name: round(value, 4) for name, value in record._asdict().items() if isinstance(value, float)}
    return record._replace(**times)


FOUND: list[tuple[dict[str, str], list[str]]] = [
    ({"door": "operation"}, ["operation"]),
    ({"door": "callback"}, ["waiting"]),
    ({"method": "PATCH"}, ["completed"]),
    ({"method": "charge"}, ["operation"]),
    ({"path": "/orders"}, ["running"]),
    ({"path": "/ORDERS"}, []),
    ({"path": "/payments/*"}, ["abandoned"]),
    ({"path": "/pay%*"}, []),
    ({"scope": "tenant=zeta"}, ["running"]),
    ({"scope": "tenant=ze"}, []),
    ({"scope": "nonsense"}, []),
    ({"request_id": "req-old"}, ["old"]),
    ({"age": "over-1h"}, ["old"]),
    ({"age": "10m", "door": "operation"}, ["operation"]),
    ({"q": "pay-com-000001"}, ["completed"]),
    ({"q": "req-old"}, ["old"]),
    ({"q": "/orders"}, ["running"]),
    ({"q": "/ord"}, ["running"]),
    ({"q": "o-1"}, ["operation"]),
    ({"q": "tenant=zeta"}, ["running"]),
    ({"q": "tenant=zeta /payments"}, []),
    ({"q": "tenant=zeta /orders"}, ["running"]),
    ({"q": "%"}, []),
    ({"path": "no\x00thing"}, []),
    ({"q": "'"}, []),
    ({"q": "/"}, ["abandoned", "completed", "failed", "old", "running", "tx"]),
]


def test_filters_and_search(shop: Shop, sign_in: Signed) -> None:
    """By door, method, path, scope, request id, age and key: what matches, and nothing else."""
    made, client = some_of_each(shop), sign_in()
    names = {claim.id.hex(): name for name, claim in made.items()}
    for query, expected in FOUND:
        assert sorted(names[id] for id in listed(client.get(LIST, query))) == sorted(expected), query
    assert client.get(LIST, {"q": "no\x00thing"}).status_code == 200


def test_search_by_the_digits_of_an_id(shop: Shop, sign_in: Signed) -> None:
    """As logs have them, in either case; and the whole id."""
    made = some_of_each(shop)
    client, wanted = sign_in(), made["completed"].id.hex()
    for digits in (wanted[:8], wanted[:6].upper(), wanted, f"{wanted[:9]}"):
        assert listed(client.get(LIST, {"q": digits})) == [wanted]
    assert listed(client.get(LIST, {"q": "0" * 64})) == []


def test_filters_that_are_not_known(on_sqlite: Shop, sign_in: Signed) -> None:
    """An address with a filter that does not exist leads to the list, as Django has it."""
    client = sign_in()
    for query in ({"standing": "odd"}, {"age": "odd"}, {"p": "999"}):
        assert client.get(LIST, query).headers["Location"].endswith("?e=1")
    for column in ("body", "key__startswith", "token"):
        assert client.get(LIST, {column: "x"}).status_code == 400
        assert client.get(AUDIT, {column: "x"}).status_code == 400


def test_a_text_filter_keeps_the_others(on_sqlite: Shop, sign_in: Signed) -> None:
    """Its form carries the other filters along, as text."""
    page = sign_in().get(LIST, {"standing": "failed", "path": '/x"><script>'}).content.decode()
    assert '<input type="hidden" name="standing" value="failed">' in page
    assert 'value="/x&quot;&gt;&lt;script&gt;"' in page
    assert (
        "<script>" not in page.replace('<script src="', "").replace("<script id=", "")
        or '"><script>' not in page
    )


def multiply(number: int) -> None:
    """Have so many records like the one that there is."""
    columns = [field.column for field in Record._meta.concrete_fields if field.column not in ("id", None)]
    source = "each"
    if connection.vendor == "sqlite":
        each = "WITH RECURSIVE each (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM each LIMIT %s)"
        id = "CAST(printf('%%032d', n) AS BLOB)"
    elif connection.vendor == "postgresql":
        each = "WITH each AS (SELECT generate_series(1, %s) AS n)"
        id = "convert_to(lpad(CAST(n AS text), 32, '0'), 'UTF8')"
    else:
        # A table of MariaDB's that has every number.
        each, id, source = "", "LPAD(numbers.seq, 32, '0')", f"seq_1_to_{number} AS numbers"
    names = ", ".join(connection.ops.quote_name(str(column)) for column in columns)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO retrysafe_records (id, {names}) {each} "
            f"SELECT {id}, {names} FROM {source}, retrysafe_records",
            [number] if each else None,
        )


def test_a_list_of_many_takes_few_queries(shop: Shop, sign_in: Signed) -> None:
    """At 20,000 records as with one: as many queries, and none of them counts; it ends at the thousandth."""
    client = sign_in()
    shop.finished("pay-few-000001")
    with CaptureQueriesContext(connection) as few:
        assert len(listed(client.get(LIST))) == 1
    multiply(20_000)
    with CaptureQueriesContext(connection) as many:
        page = client.get(LIST)
    assert len(listed(page)) == 50
    assert "The first 1000 records: there are more" in text_of(page)
    assert len(many) == len(few) <= 4
    assert not [query for query in many if "count(" in query["sql"].lower()]
    assert len(listed(client.get(LIST, {"p": "20"}))) == 50
    with CaptureQueriesContext(connection) as filtered:
        assert len(listed(client.get(LIST, {"path": "/pay*", "standing": "completed"}))) == 50
    assert len(filtered) == len(few)


def test_a_damaged_row_hides_no_other(on_sqlite: Shop, sign_in: Signed) -> None:
    """It is listed as unreadable, and its page says so."""
    good, bad = on_sqlite.finished("pay-good-00001"), on_sqlite.finished("pay-bad-000001")
    Record.objects.filter(pk=bad.id.hex()).update(scope="not JSON", attempt=0)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE retrysafe_records SET lease_until = 1e300 WHERE id = %s", [bad.id])
    client = sign_in()
    assert set(listed(client.get(LIST))) == set(ids(good, bad))
    assert "unreadable" in text_of(client.get(LIST))
    assert "cannot be read" in text_of(client.get(page_of(bad)))
    assert client.get(f"{LIST}{bad.id.hex()}/release/", follow=True).status_code == 200
    assert Record.objects.count() == 2


# --- one record


def test_the_page_of_an_abandoned_record(on_sqlite: Shop, sign_in: Signed) -> None:
    """What it is, its times, what the next call gets, and what can be done."""
    claim = on_sqlite.abandoned(ago=4 * 3600.0)
    page = text_of(sign_in().get(page_of(claim)))
    assert "abandoned Its worker died or lost the store; the outcome is unknown." in page
    assert 'with abandoned="hold" 409 outcome-unknown; the handler does not run' in page
    assert 'with abandoned="retry" runs the handler again, as attempt 2' in page
    assert "Find out what happened, then settle it:" in page
    assert "Resolve as done or failed…" in page
    assert "Release: the next request runs…" in page
    assert "POST /payments" in page
    assert "tenant=acme user=42" in page
    assert "pay_••••" in page
    assert "pay_2026" not in page
    assert "req-7f3a" in page
    assert claim.id.hex() in page
    assert "created 4 hours ago" in page
    assert "its lease ended without renewal" in page


def test_bodies_are_redacted(on_sqlite: Shop, sign_in: Signed) -> None:
    """As `retrysafe show` does; with the permission, and when asked for, all of it."""
    claim = on_sqlite.finished("pay_2026_11_15_0001", SECRETS)
    limited = sign_in("view_record", name="lea")
    for address in (page_of(claim), f"{page_of(claim)}?bodies=whole"):
        shown = text_of(limited.get(address))
        assert '"order": 7' in shown
        assert "hunter2" not in shown
        assert "4111" not in shown
        assert "sk_live" not in shown
        assert "pay_2026" not in shown
        assert "secrets included" not in shown
    assert limited.get(f"{LIST}{claim.id.hex()}/body/").status_code == 403
    trusted = sign_in("view_record", "view_bodies", name="tom")
    assert "hunter2" not in text_of(trusted.get(page_of(claim)))
    shown = text_of(trusted.get(f"{page_of(claim)}?bodies=whole"))
    assert "hunter2" in shown
    assert "sk_live_51" in shown
    assert "pay_2026_11_15_0001" in shown
    saved = trusted.get(f"{LIST}{claim.id.hex()}/body/")
    assert saved.content == SECRETS.body
    assert saved.headers["Content-Type"] == "application/octet-stream"
    assert saved.headers["Content-Disposition"].startswith("attachment")
    assert saved.headers["X-Content-Type-Options"] == "nosniff"


def test_a_payload_is_redacted(on_sqlite: Shop, sign_in: Signed) -> None:
    """What was delivered to a callback, and whether a worker handles it."""
    claim = on_sqlite.delivered("evt-1")
    limited = sign_in("view_record", name="lea")
    shown = text_of(limited.get(page_of(claim)))
    assert "Waits for a worker" in shown
    assert '"id": "evt_1"' in shown
    assert "hunter2" not in shown
    assert "sk_live_1" not in shown
    assert f'manage.py retrysafe redrive {claim.id.hex()[:8]} --reason "…"' in shown
    assert limited.get(f"{LIST}{claim.id.hex()}/payload/").status_code == 403
    trusted = sign_in("view_record", "view_bodies", name="tom")
    assert (
        trusted.get(f"{LIST}{claim.id.hex()}/payload/").content == b'{"id": "evt_1", "password": "hunter2"}'
    )


def test_every_page_can_be_drawn(shop: Shop, sign_in: Signed) -> None:
    """Whatever its door and state."""
    client = sign_in()
    for name, claim in some_of_each(shop).items():
        response = client.get(page_of(claim))
        assert response.status_code == 200, name
        assert "The next" in text_of(response), name


def test_a_record_in_progress_is_left_alone(on_sqlite: Shop, sign_in: Signed) -> None:
    """No button, and an address that was guessed says why not."""
    claim, client = on_sqlite.running("pay-run-000001"), sign_in()
    page = text_of(client.get(page_of(claim)))
    assert "Nothing can be done while its worker holds the lease" in page
    assert "Release" not in page
    for act in ("release", "resolve"):
        response = client.get(f"{LIST}{claim.id.hex()}/{act}/", follow=True)
        assert "Nothing was changed." in messages_of(response)[0]
    assert standing(claim) == "in_progress"


HOSTILE = "<script>alert(1)</script>\x1b[2J\u202egnp.\x7f{{ 7*7 }}{% now %}"


def test_hostile_content_is_text(shop: Shop, sign_in: Signed) -> None:
    """Markup, control characters and templates in whatever a client can send; large bodies and long keys."""
    body = json.dumps({"x": HOSTILE, "long": "y" * 2**20}).encode()
    headers = ((b"content-type", b"text/html"), (b"x-note", b"<script>alert(2)</script>"))
    claim = shop.finished(
        HOSTILE + "k" * 20_000,
        Response(200, headers, body),
        target=f"/orders/{HOSTILE}" + "/p" * 5000,
        request_id=HOSTILE,
        scope=(("tenant", HOSTILE),),
    )
    markup = Response(200, headers, b"<script>alert(3)</script>\x00\x1b[2J")
    other = shop.finished("other-00000001", markup)
    with contextlib.closing(guard().store.open_admin()) as store:
        [seen] = store.list(Query(id=claim.id.hex()))
        assert store.release(seen.record, Note(HOSTILE, HOSTILE), settled=True)
    claim = shop.finished(
        HOSTILE + "k" * 20_000, Response(200, headers, body), target=f"/orders/{HOSTILE}", request_id=HOSTILE
    )
    client = sign_in()
    entry = AuditEntry.objects.get()
    for address in (
        LIST,
        page_of(claim),
        f"{page_of(claim)}?bodies=whole",
        page_of(other),
        f"{page_of(other)}?bodies=whole",
        f"{LIST}{claim.id.hex()}/release/",
        f"{LIST}figures/",
        AUDIT,
        f"{AUDIT}{entry.pk}/change/",
    ):
        response = client.get(address)
        assert response.status_code == 200, address
        page = response.content.decode()
        assert "<script>alert" not in page
        for control in ("\x1b", "\u202e", "\x7f", "\x00"):
            assert control not in page
        assert "49" not in re.findall(r"gnp\..{0,20}", page)
        if "whole" not in address:
            assert len(page) < 200_000
    query = client.get(LIST, {"q": HOSTILE, "path": HOSTILE, "scope": HOSTILE})
    assert "<script>alert" not in query.content.decode()


# --- who may do what


def test_without_a_permission_nothing_is_seen(on_sqlite: Shop, sign_in: Signed) -> None:
    """Staff without it get 403 everywhere, and strangers are sent to log in."""
    claim = on_sqlite.abandoned()
    addresses = (
        LIST,
        page_of(claim),
        f"{LIST}figures/",
        f"{LIST}release/",
        f"{LIST}{claim.id.hex()}/resolve/",
        AUDIT,
    )
    client = sign_in("add_user", name="ned")
    for address in (*addresses, f"{LIST}{claim.id.hex()}/body/"):
        assert client.get(address).status_code == 403, address
        assert client.post(address, {"seen": "x", "reason": "y"}).status_code == 403, address
    for address in addresses:
        assert Client().get(address).headers["Location"].startswith("/admin/login/"), address


def test_to_look_is_not_to_change(on_sqlite: Shop, sign_in: Signed) -> None:
    """Who may see records is offered no action, and cannot take one by its address."""
    claim = on_sqlite.abandoned()
    client = sign_in("view_record", name="vera")
    assert "_selected_action" not in client.get(LIST).content.decode()
    page = text_of(client.get(page_of(claim)))
    assert "You do not have the permission to release or resolve it." in page
    for act in ("release", "resolve"):
        assert client.get(f"{LIST}{claim.id.hex()}/{act}/").status_code == 403
        assert client.post(f"{LIST}{act}/", {"seen": "", "reason": "x"}).status_code == 403
    select(client, "release_selected", claim)
    assert standing(claim) == "abandoned"


def test_each_permission_for_itself(on_sqlite: Shop, sign_in: Signed) -> None:
    """Releasing and resolving are two permissions."""
    claim = on_sqlite.abandoned()
    releases = sign_in("view_record", "release_record", name="rita")
    assert releases.get(f"{LIST}{claim.id.hex()}/resolve/").status_code == 403
    page = releases.get(page_of(claim)).content.decode()
    assert "/release/" in page
    assert "/resolve/" not in page
    resolves = sign_in("view_record", "resolve_record", name="rob")
    assert resolves.get(f"{LIST}{claim.id.hex()}/release/").status_code == 403
    assert resolves.get(f"{LIST}{claim.id.hex()}/resolve/").status_code == 200


def test_nobody_adds_changes_or_deletes(on_sqlite: Shop, sign_in: Signed) -> None:
    """Not even a superuser, of records and of audit entries; and there are no such permissions to give."""
    claim, client = on_sqlite.abandoned(), sign_in()
    confirm(client, "resolve", claim, outcome="failed", body_is="missing", reason="refused")
    entry = AuditEntry.objects.get()
    for place, id in ((LIST, claim.id.hex()), (AUDIT, str(entry.pk))):
        assert client.get(f"{place}add/").status_code == 403
        assert client.post(f"{place}{id}/delete/", {"post": "yes"}).status_code == 403
        assert client.post(f"{place}{id}/change/", {"reason": "other"}).status_code in (200, 403)
    select(client, "delete_selected", claim)
    assert Record.objects.count() == AuditEntry.objects.count() == 1
    assert AuditEntry.objects.get().reason == "refused"
    codenames = Permission.objects.filter(content_type__app_label="retrysafe").values_list(
        "codename", flat=True
    )
    assert sorted(codenames) == [
        "release_record",
        "resolve_record",
        "view_auditentry",
        "view_bodies",
        "view_record",
    ]


def test_a_form_from_elsewhere_is_refused(on_sqlite: Shop, sign_in: Signed) -> None:
    """Django's token is asked for, as in every form."""
    claim = on_sqlite.abandoned()
    sign_in()
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.get())
    asked = strict.get(f"{LIST}{claim.id.hex()}/release/")
    given = {"seen": seen_in(asked), "reason": "x"}
    assert strict.post(f"{LIST}release/", given).status_code == 403
    assert standing(claim) == "abandoned"
    token = re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', asked.content.decode())[0]
    strict.post(f"{LIST}release/", {**given, "csrfmiddlewaretoken": token})
    assert standing(claim) is None


# --- interventions


def test_release_one(shop: Shop, sign_in: Signed) -> None:
    """The page says what will happen, asks why, and what is done is in the audit trail."""
    claim, client = shop.abandoned(), sign_in("view_record", "release_record", name="rita")
    asked = client.get(f"{LIST}{claim.id.hex()}/release/")
    said = text_of(asked)
    assert "the next request with this key will RUN the handler again" in said
    assert "If the first attempt did anything, it will then be done twice." in said
    assert standing(claim) == "abandoned"
    nameless = client.post(f"{LIST}release/", {"seen": seen_in(asked), "reason": "  "})
    assert "This field is required" in text_of(nameless)
    assert seen_in(nameless) == seen_in(asked)
    assert standing(claim) == "abandoned"
    done = confirm(client, "release", claim, reason="not in the provider's list")
    assert messages_of(done) == [
        f"Record {claim.id.hex()[:8]} was released; the next request with its key runs."
    ]
    assert standing(claim) is None
    entry = AuditEntry.objects.get()
    assert (entry.by, entry.reason, entry.act, entry.outcome, entry.record) == (
        "rita",
        "not in the provider's list",
        "release",
        "released",
        claim.id.hex(),
    )


def test_release_of_each_kind(shop: Shop, sign_in: Signed) -> None:
    """What follows is said of each in its own way."""
    made, client = some_of_each(shop), sign_in()
    for name, said, outcome in (
        ("failed", "The stored failure will be deleted", "released, was failed 500"),
        ("completed", "This request is DONE. Its stored response will", "released, was completed 201"),
        ("waiting", "Its sender was told that it is stored", "released"),
        ("tx", "What the first attempt did in its transaction was rolled back", "released"),
    ):
        claim = made[name]
        assert said in text_of(client.get(f"{LIST}{claim.id.hex()}/release/"))
        confirm(client, "release", claim, reason="it was undone")
        assert standing(claim) is None
        assert AuditEntry.objects.get(record=claim.id.hex()).outcome == outcome


def test_release_many(shop: Shop, sign_in: Signed) -> None:
    """Abandoned and failed ones of the selection, each with an entry; what is left out is said."""
    made, client = some_of_each(shop), sign_in()
    chosen = [made[name] for name in ("old", "abandoned", "failed", "completed", "waiting", "running")]
    asked = select(client, "release_selected", *chosen)
    assert "3 selected records are left out" in messages_of(asked)[0]
    assert "Release 3 records" in asked.content.decode()
    assert Record.objects.count() == len(made)
    done = client.post(
        f"{LIST}release/", {"seen": seen_in(asked), "reason": "the network was down"}, follow=True
    )
    assert messages_of(done) == ["3 of 3 records released; the next request with such a key runs."]
    gone = ("old", "abandoned", "failed")
    assert {name for name, claim in made.items() if standing(claim) is None} == set(gone)
    assert set(AuditEntry.objects.values_list("record", flat=True)) == set(
        ids(*(made[name] for name in gone))
    )


def test_select_all_of_a_filter(on_sqlite: Shop, sign_in: Signed) -> None:
    """Also those of the pages that are not shown, as the filter has them."""
    made = [on_sqlite.finished(f"pay-fai-{n:06}", Response(500), state="failed", ago=60.0) for n in range(60)]
    other = on_sqlite.finished("other-00000001", Response(500), state="failed", target="/orders")
    client = sign_in()
    given = {"action": "release_selected", "_selected_action": ids(made[0]), "select_across": "1"}
    asked = client.post(f"{LIST}?standing=failed&path=/payments", given)
    assert "… and 40 more." in text_of(asked)
    client.post(f"{LIST}release/", {"seen": seen_in(asked), "reason": "fixed"})
    assert list(Record.objects.values_list("pk", flat=True)) == ids(other)
    assert AuditEntry.objects.count() == 60


def test_nothing_to_release(on_sqlite: Shop, sign_in: Signed) -> None:
    """A selection without an abandoned or failed one leads back to the list, with the reason."""
    claim = on_sqlite.finished("pay-com-000001")
    for act in ("release_selected", "resolve_selected"):
        response = select(sign_in(name=act), act, claim)
        assert "left out" in messages_of(response)[0]
    assert standing(claim) == "completed"


def test_what_changed_meanwhile_is_left_alone(shop: Shop, sign_in: Signed) -> None:
    """Between the question and its reply the worker came back: nothing is done, and the message says so."""
    late, gone, still = (
        shop.abandoned("pay-late-00001"),
        shop.abandoned("pay-gone-00001"),
        shop.abandoned("pay-0001"),
    )
    client = sign_in()
    asked = select(client, "release_selected", late, gone, still)
    shop.at(0)
    from retrysafe._core.model import Final

    assert shop.store.finish(late, Final("completed", Response(201)))
    confirm(sign_in(name="rita"), "release", gone, reason="first")
    done = client.post(f"{LIST}release/", {"seen": seen_in(asked), "reason": "second"}, follow=True)
    said = messages_of(done)
    assert said[0] == "1 of 3 records released; the next request with such a key runs."
    assert any(f"{late.id.hex()[:8]}: it is completed (201)" in one for one in said)
    assert any(f"{gone.id.hex()[:8]}: it no longer exists (rita: released)" in one for one in said)
    assert standing(late) == "completed"
    assert standing(still) is None


def test_a_form_that_is_sent_twice(on_sqlite: Shop, sign_in: Signed) -> None:
    """The second time nothing happens, also where the key was used again meanwhile."""
    claim, client = on_sqlite.abandoned(), sign_in()
    asked = client.get(f"{LIST}{claim.id.hex()}/release/")
    given = {"seen": seen_in(asked), "reason": "x"}
    client.post(f"{LIST}release/", given)
    again = client.post(f"{LIST}release/", given, follow=True)
    assert "it no longer exists (olga: released)" in messages_of(again)[-1]
    successor = on_sqlite.abandoned()
    assert successor.id == claim.id
    client.post(f"{LIST}release/", given)
    assert standing(successor) == "abandoned"
    assert AuditEntry.objects.count() == 1


@pytest.mark.parametrize(
    "given",
    ["", "nonsense", f"{'0' * 64}.{'0' * 64}", "CLAIM." + "0" * 64],
    ids=["empty", "nonsense", "unknown", "forged"],
)
def test_what_was_not_seen_is_not_changed(on_sqlite: Shop, sign_in: Signed, given: str) -> None:
    """A form that was made up changes nothing."""
    claim = on_sqlite.abandoned()
    seen = given.replace("CLAIM", claim.id.hex())
    client = sign_in()
    for act, more in (("release", {}), ("resolve", {"outcome": "failed", "body_is": "missing"})):
        response = client.post(f"{LIST}{act}/", {"seen": seen, "reason": "x", **more}, follow=True)
        assert response.status_code == 200
    assert standing(claim) == "abandoned"
    assert AuditEntry.objects.count() == 0


def test_resolve_as_done(shop: Shop, sign_in: Signed) -> None:
    """Retries get the response that was entered, exactly; its owner is fenced."""
    claim, client = shop.abandoned(), sign_in("view_record", "resolve_record", name="rob")
    done = confirm(
        client,
        "resolve",
        claim,
        outcome="completed",
        status="201",
        body_is="given",
        body='@/etc/passwd {"paid": 5}\r\n',
        headers="Location: /orders/7\r\n\r\nX-Kind: paid",
        content_type="text/plain",
        reason="it is in the ledger",
    )
    assert (
        f"Record {claim.id.hex()[:8]} was resolved as done; retries get 201 with 25 B of body."
        in messages_of(done)
    )
    row = Record.objects.get()
    assert (row.state, row.status, bytes(row.body or b"")) == (
        "completed",
        201,
        b'@/etc/passwd {"paid": 5}\n',
    )
    assert json.loads(row.headers or "") == [
        ["content-type", "text/plain"],
        ["location", "/orders/7"],
        ["x-kind", "paid"],
    ]
    assert row.token != claim.token.hex()
    entry = AuditEntry.objects.get()
    assert (entry.by, entry.act, entry.outcome) == ("rob", "resolve", "completed 201")
    assert "it is in the ledger" in text_of(client.get(page_of(claim)))


def test_resolve_without_a_body(on_sqlite: Shop, sign_in: Signed) -> None:
    """It is marked as omitted, and the head that was sent already stays."""
    claim = on_sqlite.checkpointed("pay-head-00001", Response(202, ((b"location", b"/jobs/1"),)))
    page = text_of(sign_in(name="eve").get(f"{LIST}{claim.id.hex()}/resolve/"))
    assert "part of its response was sent, 202" in page
    confirm(sign_in(), "resolve", claim, outcome="completed", body_is="missing", reason="seen")
    row = Record.objects.get()
    assert (row.state, row.status, row.omitted, row.headers) == (
        "completed",
        202,
        1,
        '[["location","/jobs/1"]]',
    )


def test_resolve_as_failed_many(on_sqlite: Shop, sign_in: Signed) -> None:
    """One outcome for several records."""
    claims = [on_sqlite.abandoned(f"pay-{n:06}") for n in range(3)]
    client = sign_in()
    asked = select(client, "resolve_selected", *claims)
    given = {"seen": seen_in(asked), "outcome": "failed", "body_is": "missing", "reason": "refused"}
    done = client.post(f"{LIST}resolve/", given, follow=True)
    assert messages_of(done) == [
        "3 of 3 records resolved as failed; retries get 500 with an empty body that is marked as omitted."
    ]
    assert set(Record.objects.values_list("state", "status")) == {("failed", 500)}


@pytest.mark.parametrize(
    ("given", "state", "status", "body"),
    [
        ({"outcome": "completed", "value": '{"paid": 5}'}, "completed", 200, b'{"paid": 5}'),
        ({"outcome": "failed", "message": "refused"}, "failed", 500, b"refused"),
        ({"outcome": "completed"}, "completed", 200, b""),
    ],
)
def test_resolve_an_operation(
    shop: Shop, sign_in: Signed, given: dict[str, str], state: str, status: int, body: bytes
) -> None:
    """It has a value or a message, and no response."""
    claim = shop.abandoned("charge-0001", door="operation", action="charge", target="o-1")
    client = sign_in()
    assert 'name="status"' not in client.get(f"{LIST}{claim.id.hex()}/resolve/").content.decode()
    confirm(client, "resolve", claim, reason="looked", **given)
    row = Record.objects.get()
    assert (row.state, row.status) == (state, status)
    assert body in bytes(row.body or b"")
    assert row.omitted == (0 if body else 1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "This field is required"),
        ({"outcome": "odd"}, "Select a valid choice"),
        ({"outcome": "completed", "status": "503"}, "“it was done” with status 503 is contradictory"),
        ({"outcome": "failed", "status": "201"}, "“it failed” with status 201 would look like a success"),
        ({"outcome": "completed", "status": "99"}, "greater than or equal to 200"),
        ({"outcome": "completed", "headers": "Set-Cookie: a=b"}, "Set-Cookie cannot be stored"),
        ({"outcome": "completed", "headers": "nonsense"}, "is not of the form NAME: VALUE"),
        ({"outcome": "completed", "content_type": "text/event-stream"}, "An event stream has no end"),
        (
            {"outcome": "completed", "status": "204", "body_is": "given", "body": "x"},
            "status 204 has no body",
        ),
        ({"outcome": "completed", "body_is": "missing", "body": "x"}, "choose one"),
        ({"outcome": "completed", "body_is": "given", "body": "é" * 600_000}, "larger than 1.0 MiB"),
    ],
)
def test_a_response_that_cannot_be(
    on_sqlite: Shop, sign_in: Signed, given: dict[str, str], said: str
) -> None:
    """It is said at the form, in the words of the form, and nothing is changed."""
    claim = on_sqlite.abandoned()
    response = confirm(sign_in(), "resolve", claim, **{"body_is": "missing", "reason": "x", **given})
    assert said in text_of(response)
    assert "--" not in text_of(response)
    assert standing(claim) == "abandoned"


def test_values_that_cannot_be(on_sqlite: Shop, sign_in: Signed) -> None:
    """Of operations, too."""
    claim, client = on_sqlite.abandoned("c-1", door="operation", action="charge"), sign_in()
    refused = confirm(client, "resolve", claim, outcome="completed", value="{", reason="x")
    assert "The value is not valid JSON" in text_of(refused)
    refused = confirm(client, "resolve", claim, outcome="failed", value="1", reason="x")
    assert "The value does not go with “it failed”" in text_of(refused)
    assert standing(claim) == "abandoned"


def test_requests_and_operations_are_resolved_apart(on_sqlite: Shop, sign_in: Signed) -> None:
    """The one has a response and the other a value."""
    claims = on_sqlite.abandoned(), on_sqlite.abandoned("c-1", door="operation", action="charge")
    response = select(sign_in(), "resolve_selected", *claims)
    assert "select either the one or the other" in messages_of(response)[0]


def test_back_to_the_list_as_it_was(on_sqlite: Shop, sign_in: Signed) -> None:
    """Filters survive a confirmation."""
    claim, client = on_sqlite.abandoned(), sign_in()
    asked = client.post(
        f"{LIST}?standing=abandoned", {"action": "release_selected", "_selected_action": ids(claim)}
    )
    [address] = re.findall(r'action="([^"]+)" id="retrysafe-form"', asked.content.decode())
    done = client.post(html.unescape(address), {"seen": seen_in(asked), "reason": "x"})
    assert done.headers["Location"] == f"{LIST}?standing=abandoned"


def test_in_a_transaction_of_each_request(sign_in: Signed, on_sqlite: Shop) -> None:
    """`ATOMIC_REQUESTS` does not hold for interventions, which are transactions of the store's own."""
    claim, client = on_sqlite.abandoned(), sign_in()
    connection.settings_dict["ATOMIC_REQUESTS"] = True
    try:
        confirm(client, "release", claim, reason="x")
    finally:
        connection.settings_dict["ATOMIC_REQUESTS"] = False
    assert standing(claim) is None
    assert AuditEntry.objects.count() == 1


def test_in_a_transaction_of_a_test(sign_in: Signed, each_database: str) -> None:
    """As in Django's `TestCase`: what is done is undone with it, and the audit entry, too."""
    client = sign_in()
    with contextlib.suppress(ZeroDivisionError), transaction.atomic():
        claim = Claim(
            b"i" * 32, b"t" * 16, b"f" * 32, 0.0, DAY, DAY, "request", (), "key-1", "POST", "/x", "r"
        )
        guard().store.reserve(claim)
        done = confirm(client, "release", claim, reason="x")
        assert "was released" in messages_of(done)[0]
        assert AuditEntry.objects.count() == 1
        assert Record.objects.count() == 0
        assert "abandoned 0" in text_of(client.get(f"{LIST}figures/"))
        raise ZeroDivisionError
    assert AuditEntry.objects.count() == 0


def test_a_record_that_is_gone(on_sqlite: Shop, sign_in: Signed) -> None:
    """Its address leads to the list, and its history to the audit trail."""
    claim, client = on_sqlite.abandoned(), sign_in()
    confirm(client, "release", claim, reason="x")
    for address in (page_of(claim), f"{LIST}{claim.id.hex()}/release/", f"{LIST}nonsense/change/"):
        response = client.get(address, follow=True)
        assert response.redirect_chain[0][0] == LIST
    trail = client.get(f"{LIST}{claim.id.hex()}/history/", follow=True)
    assert "released" in text_of(trail)


# --- the audit trail and the figures


def test_the_audit_trail(shop: Shop, sign_in: Signed) -> None:
    """Listed, searched and read; keys are masked."""
    first, second = shop.abandoned("pay_2026_11_15_0001"), shop.abandoned("pay_2026_11_15_0002")
    confirm(sign_in(name="rita"), "release", first, reason="not in the ledger")
    confirm(
        sign_in(name="rob"), "resolve", second, outcome="failed", body_is="missing", reason="refused by bank"
    )
    client = sign_in("view_auditentry", name="ann")
    page = text_of(client.get(AUDIT))
    assert page.index("rob resolve failed 500") < page.index("rita release released")
    assert "pay_2026" not in page
    for query, found, missing in (
        ({"q": "ledger"}, "rita", "refused"),
        ({"q": "ROB"}, "refused", "ledger"),
        ({"q": first.id.hex()[:8]}, "rita", "refused"),
        ({"q": "pay_2026_11_15_0002"}, "refused", "ledger"),
        ({"act": "release"}, "rita", "refused"),
    ):
        said = text_of(client.get(AUDIT, query))
        assert found in said, query
        assert missing not in said, query
    entry = AuditEntry.objects.get(act="release")
    detail = text_of(client.get(f"{AUDIT}{entry.pk}/change/"))
    assert "not in the ledger" in detail
    assert "pay_••••" in detail
    assert "pay_2026" not in detail


def test_figures(shop: Shop, sign_in: Signed) -> None:
    """By standing, door, route and scope; verdicts, duplicates, and calls without a key of each route."""
    some_of_each(shop)
    from retrysafe._core.model import Counted

    with contextlib.closing(shop.store.open_keeper()) as keeper:
        keeper.count(
            {
                Counted("executed", "request", "/orders", ""): 3,
                Counted("replayed", "request", "/orders", ""): 1,
            }
        )
        keeper.count({Counted("keyless", "request", "/payments", ""): 4})
    response = sign_in("view_record", name="fay").get(f"{LIST}figures/")
    said = text_of(response)
    assert "abandoned 3 the oldest 4 hours ago" in said
    assert "waiting 1 for a worker" in said
    assert "duplicates 1 25.0% of calls with a key" in said
    assert "without a key 4 50.0% of all calls" in said
    assert "/payments 4 4 100.0%" in said
    assert "By door" in said
    assert "By scope" in said
    assert "tenant=zeta" in said
    assert f'href="{LIST}?standing=abandoned"' in response.content.decode()


def test_figures_of_nothing(on_sqlite: Shop, sign_in: Signed) -> None:
    """An empty store has a page, too."""
    assert "None counted yet" in text_of(sign_in().get(f"{LIST}figures/"))


def test_what_the_project_calls_completed(on_sqlite: Shop, sign_in: Signed) -> None:
    """The word is that of its profile."""
    claim, client = on_sqlite.finished("pay-com-000001"), sign_in()
    with override_settings(RETRYSAFE={"PROFILE": "workflow-control", "DATABASE": "default"}):
        assert "succeeded" in text_of(client.get(LIST))
        assert "succeeded" in text_of(client.get(page_of(claim)))
        assert "succeeded" in text_of(client.get(f"{LIST}figures/"))


# --- the application


def test_registered_where_there_are_tables(tmp_path: Path) -> None:
    """Not where the records are in another store, nor where the settings are wrong: the checks say that."""
    with override_settings(RETRYSAFE={"DATABASE": "default"}):
        register(site := admin.AdminSite("one"))
        assert site.is_registered(Record)
        assert site.is_registered(AuditEntry)
    for said in ({"STORE": f"sqlite:///{tmp_path}/keys.db"}, {"DATABSE": "default"}):
        with override_settings(RETRYSAFE=said):
            register(site := admin.AdminSite("other"))
            assert not site.is_registered(Record)


def test_migrations_are_complete() -> None:
    """Permissions are options of models, which Django keeps in migrations."""
    call_command("makemigrations", "--check", "--dry-run", "retrysafe", verbosity=0)


def test_the_admin_does_not_need_the_command_line() -> None:
    """`retrysafe[cli]` need not be installed."""
    import subprocess
    import sys

    source = """
import sys
sys.modules["typer"] = sys.modules["rich"] = None
from tests.django import project
project.configure()
from django.contrib import admin
from retrysafe.django.models import Record
assert admin.site.is_registered(Record)
"""
    subprocess.run([sys.executable, "-c", source], check=True, timeout=60)


def test_times_beyond_the_calendar() -> None:
    """A damaged time is no time, and raises nothing."""
    from retrysafe.django.fields import MomentField

    field: Any = MomentField()
    assert field.from_db_value(1e300, None, None) is None
    assert field.from_db_value(float("inf"), None, None) is None
    assert field.from_db_value(DAY, None, None) == datetime.fromtimestamp(DAY, UTC)


def test_a_site_of_its_own_name(on_sqlite: Shop, sign_in: Signed) -> None:
    """Links stay in the site that the project has made, beside Django's own."""
    claim, client = on_sqlite.abandoned(), sign_in()
    entrance = "/ops/retrysafe/record/"
    for address in (
        entrance,
        f"{entrance}{claim.id.hex()}/change/",
        f"{entrance}{claim.id.hex()}/release/",
        f"{entrance}figures/",
    ):
        page = client.get(address)
        assert page.status_code == 200
        assert 'href="/admin/' not in page.content.decode(), address
