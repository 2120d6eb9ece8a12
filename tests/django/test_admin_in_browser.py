"""The admin site in a real browser: what an operator does there, wide and narrow, light and dark.

With `RETRYSAFE_SCREENSHOTS=folder` pictures of the pages are saved.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import User
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.handlers.wsgi import WSGIHandler
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
from django.test import override_settings
from django.urls import path

from retrysafe._core.model import Counted, Response
from retrysafe.django.models import AuditEntry, Record, RouteCount, Verdict
from retrysafe.django.settings import close_guards
from retrysafe.stores.admin import Note, Query
from tests.cli.records import ACME, JSON, Shop
from tests.django.browser import Browser, browser, needs_chromium

urlpatterns = [path("admin/", admin.site.urls)]

pytestmark = needs_chromium

LIST = "/admin/retrysafe/record/"
QUICK = "django.contrib.auth.hashers.MD5PasswordHasher"
HOSTILE = "<script>document.title = 'taken over'</script>\x1b[2J\u202e"


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *given: object) -> None:
        """Not into the output of the tests."""


@pytest.fixture
def site() -> Iterator[str]:
    """The address of the project, served with its style sheets as by `runserver`."""
    with (
        override_settings(ROOT_URLCONF=__name__, PASSWORD_HASHERS=[QUICK]),
        ThreadedWSGIServer(("127.0.0.1", 0), _Quiet, allow_reuse_address=False) as server,
    ):
        server.daemon_threads = False  # so that they are waited for
        server.set_app(StaticFilesHandler(WSGIHandler()))
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def shop() -> Iterator[Shop]:
    with contextlib.closing(Shop(Path(settings.DATABASES["default"]["NAME"]))) as shop:
        yield shop
    close_guards()
    for model in (User, RouteCount, Verdict):
        model.objects.all().delete()


@pytest.fixture
def window(site: str, shop: Shop) -> Iterator[Browser]:
    """Signed in as the operator olga."""
    User.objects.create_superuser("olga", password="of tests alone")
    with browser() as window:
        window.resize(1280)
        window.open(f"{site}/admin/")
        window.type("#id_username", "olga")
        window.type("#id_password", "of tests alone")
        window.follow("input[type=submit]")
        yield window
        # Requests that are under way are waited for, and a page may ask for something that nobody reads.
        window.open("about:blank")


def picture(window: Browser, name: str) -> None:
    if folder := os.environ.get("RETRYSAFE_SCREENSHOTS"):
        window.screenshot(Path(folder) / f"{name}.png")


def fill(shop: Shop) -> str:
    """A day of a shop; the id of its oldest abandoned record."""
    order = Response(
        201, (*JSON, (b"location", b"/orders/7")), b'{"order": 7, "card": {"number": "4111111111111111"}}'
    )
    for number in range(12):
        shop.finished(
            f"ord_{number:04}_7f",
            order,
            ago=400.0 + 300 * number,
            target="/orders",
            request_id=f"req-{number:04x}",
        )
    shop.finished("pay_0042_77", order, ago=3000.0, request_id="req-7c1d")
    shop.finished("pay_0041_77", Response(502), state="failed", ago=3500.0, request_id="req-7c1c")
    shop.finished(
        "cap_0041_77",
        Response(500),
        state="failed",
        ago=3600.0,
        target="/captures",
        scope=(("tenant", "zeta"),),
    )
    shop.running("pay_0043_77", ago=4.0, request_id="req-7c1e")
    shop.delivered("evt_0001_77", ago=700.0)
    shop.finished("charge_0001", order, door="operation", action="charge", target="o-1", ago=1200.0)
    shop.abandoned("pay_0040_77", ago=300.0, request_id="req-7c1b", target="/payments/" + "9f" * 40)
    shop.finished(HOSTILE + "k" * 400, order, target=f"/{HOSTILE}" + "x" * 400, scope=(("tenant", HOSTILE),))
    oldest = shop.abandoned("pay_0039_77", ago=4 * 3600.0, request_id="req-7c1a", scope=ACME)
    gone = shop.finished("pay_0038_77", Response(502), state="failed", ago=3700.0, request_id="req-7c19")
    shop.at(0)
    with contextlib.closing(shop.store.open_admin()) as store:
        [seen] = store.list(Query(id=gone.id.hex()))
        store.release(
            seen.record, Note("rita", "the card network was down, nothing was charged"), settled=True
        )
    with contextlib.closing(shop.store.open_keeper()) as keeper:
        for verdict, route, number in (
            ("executed", "/orders", 812), ("replayed", "/orders", 31), ("keyless", "/orders", 4),
            ("executed", "/payments", 310), ("replayed", "/payments", 12), ("in-flight", "/payments", 3),
            ("outcome-unknown", "/payments", 2), ("key-missing", "/payments", 1), ("keyless", "/exports", 96),
        ):  # fmt: skip
            keeper.count({Counted(verdict, "request", route, ""): number})
    return oldest.id.hex()


def test_an_operator_settles_a_record(window: Browser, site: str, shop: Shop) -> None:
    """From the list by a filter to the record, its confirmation, and the audit trail: all by clicking."""
    oldest = fill(shop)
    window.open(f"{site}{LIST}")
    picture(window, "list-wide-light")
    window.follow(".object-tools a[href*='standing=abandoned']")
    assert window.run("return document.querySelectorAll('#result_list tbody tr').length") == 2
    window.follow("#result_list tbody tr:first-child th a")
    assert "outcome is unknown" in window.text
    assert oldest in window.text
    picture(window, "record-wide-light")
    window.follow(".retrysafe-buttons a[href*='/release/']")
    assert "will RUN the handler again" in window.text
    picture(window, "release-wide-light")
    window.follow("#retrysafe-form input[type=submit]")
    assert "This field is required." in window.text
    assert Record.objects.filter(pk=oldest).exists()
    window.type("#id_reason", "the provider's list does not have it")
    window.follow("#retrysafe-form input[type=submit]")
    assert f"Record {oldest[:8]} was released; the next request with its key runs." in window.text
    assert window.run("return location.search") == "?standing=abandoned"
    assert not Record.objects.filter(pk=oldest).exists()
    assert AuditEntry.objects.latest("entry").by == "olga"
    window.follow(".object-tools a[href*='auditentry']")
    assert "the provider's list does not have it" in window.text
    picture(window, "audit-wide-light")
    assert window.complaints() == []


def test_an_operator_resolves_several(window: Browser, site: str, shop: Shop) -> None:
    """Chosen by their boxes, with a response that retries get."""
    fill(shop)
    window.open(f"{site}{LIST}?standing=abandoned")
    window.click("#action-toggle")
    window.run("document.querySelector('select[name=action]').value = 'resolve_selected'")
    window.follow("button[name=index]")
    window.click("input[name=outcome][value=completed]")
    window.click("input[name=body_is][value=given]")
    window.type("#id_status", "201")
    window.type("#id_body", '{"paid": 5}')
    window.type("#id_headers", "Location: /payments/39")
    window.type("#id_reason", "they are in the ledger")
    picture(window, "resolve-wide-light")
    window.follow("#retrysafe-form input[type=submit]")
    assert "2 of 2 records resolved as done; retries get 201 with 11 B of body." in window.text
    assert set(Record.objects.filter(status=201, body=b'{"paid": 5}').values_list("state", flat=True)) == {
        "completed"
    }
    assert window.complaints() == []


def test_a_filter_that_is_typed(window: Browser, site: str, shop: Shop) -> None:
    """It narrows what another one has left, and can be removed."""
    fill(shop)
    window.open(f"{site}{LIST}?standing=failed")
    window.type(".retrysafe-filter input[name=path]", "/capt*")
    window.follow(".retrysafe-filter input[name=path] ~ input[type=submit]")
    assert window.run("return document.querySelectorAll('#result_list tbody tr').length") == 1
    window.follow(".retrysafe-filter a")
    assert window.run("return location.search") == "?standing=failed"
    assert window.complaints() == []


def luminance(window: Browser, css: str) -> float:
    """Of the first background that is not transparent, from 0 to 255."""
    colour = window.run(
        f"let one = document.querySelector({css!r}); let found;"
        "do { found = getComputedStyle(one).backgroundColor; one = one.parentElement; }"
        "while (one && /, 0\\)$/.test(found)); return found"
    )
    return sum(map(int, re.findall(r"\d+", str(colour))[:3])) / 3


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_fits(window: Browser, site: str, shop: Shop, theme: str, width: int) -> None:
    """No page is wider than its window, wide tables scroll in place, dark is dark, and markup is text."""
    oldest = fill(shop)
    window.resize(width)
    window.theme(theme)
    hostile = Record.objects.get(target__startswith="/<script>").pk
    waiting = Record.objects.get(door="callback").pk
    pages = {
        "list": LIST,
        "record": f"{LIST}{oldest}/change/",
        "completed": f"{LIST}{Record.objects.filter(target='/orders').first().pk}/change/",  # type: ignore[union-attr]  # there are some
        "hostile": f"{LIST}{hostile}/change/",
        "waiting": f"{LIST}{waiting}/change/",
        "release": f"{LIST}{oldest}/release/",
        "danger": f"{LIST}{hostile}/release/",
        "resolve": f"{LIST}{oldest}/resolve/",
        "figures": f"{LIST}figures/",
        "audit": "/admin/retrysafe/auditentry/",
    }
    for name, address in pages.items():
        window.open(f"{site}{address}")
        picture(window, f"{name}-{'wide' if width > 600 else 'narrow'}-{theme}")
        assert window.overflow() <= 0, name
        assert (luminance(window, "#content") > 128) == (theme == "light"), name
        assert "taken over" not in window.run("return document.title")
        assert "\x1b" not in window.text
        assert window.complaints() == [], name
