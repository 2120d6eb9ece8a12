"""`settings.RETRYSAFE`: what it may say, and what is said of what it may not."""

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.http import HttpRequest
from django.test import override_settings

from retrysafe import scopes as general
from retrysafe._http.marked import marked
from retrysafe.django import IdempotentMixin, guard, idempotent, scopes
from retrysafe.django.settings import KNOWN, database, read
from retrysafe.errors import ConfigurationError
from retrysafe.events import Event
from retrysafe.policy import Options
from retrysafe.stores.memory import MemoryStore
from retrysafe.stores.sql.django import DjangoStore
from retrysafe.stores.sql.sqlite import SQLiteStore

seen: list[Event] = []


def on_event(event: Event) -> None:
    seen.append(event)


def owner(request: HttpRequest) -> str | None:
    return request.headers.get("X-Owner")


async def owner_async(request: HttpRequest) -> str:
    return "awaited"


def test_every_option_has_a_name() -> None:
    """Those of a guard, in capital letters; a new one is not forgotten."""
    assert {name.upper() for name in Options.__annotations__} - {"BACKGROUND"} < KNOWN
    with pytest.raises(ConfigurationError, match=r"background= has no meaning in Django"):
        idempotent(background="after")  # type: ignore[call-overload]  # which is refused


def test_nothing_said() -> None:
    """The user's keys, in the database that the router writes to."""
    with override_settings(RETRYSAFE={}):
        assert guard().rules.request.scope is general.user
        assert isinstance(guard().store, DjangoStore)
        assert database() == "default"
    with override_settings():
        del settings.RETRYSAFE
        assert read() == {}


def test_dotted_paths() -> None:
    """Functions that settings cannot import, because they need models."""
    said = {"SCOPE": f"{__name__}.owner", "ON_EVENT": f"{__name__}.on_event"}
    with override_settings(RETRYSAFE=said):
        assert guard().rules.request.scope(_request(owner="x")) == general.resolve("x")


def _request(**headers: str) -> Any:
    from django.test import RequestFactory

    from retrysafe.django.guarded.request import read as read_request

    named = {f"X-{name.title()}": value for name, value in headers.items()}
    return read_request(RequestFactory().post("/", headers=named))


def test_scopes_of_scopes() -> None:
    """A function inside of a ready-made rule gets Django's request, too; an organisation has its name."""
    rule = scopes.of_django(
        scopes.first_of(owner, scopes.organisation(lambda request: request.headers.get("X-Org")))
    )
    assert rule(_request(owner="x")) == general.resolve("x")
    assert rule(_request(org="7")) == general.resolve({"organisation": "7"})
    assert rule(_request()) is None
    assert general.describe(scopes.organisation("a.b.c")) == "what a.b.c returns"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ([], "is list: expected a dictionary"),
        ({"EFECTS": "database"}, "did you mean 'EFFECTS'"),
        ({"effects": "database"}, "did you mean 'EFFECTS'"),
        ({"DATABASE": "default", "STORE": "memory:"}, "'DATABASE' and 'STORE'"),
        ({"SCOPE": scopes.user, "ORGANISATION": "a.b"}, "'SCOPE' and 'ORGANISATION'"),
        ({"ROUTES": {"/api/": {"no_store": True}}}, "'ROUTES' and no 'PATHS'"),
        ({"STORE": MemoryStore(), "DEADLINE": 1.0}, "'DEADLINE' beside a store that is made"),
        ({"DATABASE": "nowhere"}, "no alias in DATABASES: there are default, second"),
        ({"SCOPE": "no.such.module"}, "cannot be imported"),
        ({"SCOPE": "user"}, "is not a scope"),
        ({"SCOPE": f"{__name__}.seen"}, "which is no function but list"),
        ({"ORGANISATION": 7}, r"scopes\.organisation\(7\)"),
        ({"ON_EVENT": "no.such.module"}, "cannot be imported"),
        ({"PROFILE": "nothing"}, "is not a profile"),
        ({"LEASE": 0}, "lease"),
        ({"DEADLINE": 0}, "deadline must be greater than 0"),
        ({"CLEANUP_INTERVAL": "never"}, "cleanup_interval"),
        ({"STORE": "mongodb://x"}, "not a known scheme of stores"),
    ],
)
def test_what_is_wrong_is_said(said: Any, words: str) -> None:
    """What was found, and what was expected, before anything is served."""
    with override_settings(RETRYSAFE=said), pytest.raises(ConfigurationError, match=words):
        guard()


def test_a_store_elsewhere(tmp_path: Path) -> None:
    """An address, and then nothing is joined."""
    with override_settings(RETRYSAFE={"STORE": f"sqlite:///{tmp_path / 'keys.db'}"}):
        assert isinstance(guard().store, SQLiteStore)
        assert database() is None
        view = idempotent(effects="database")(lambda request: None)
        with pytest.raises(ConfigurationError, match=r"name its alias in RETRYSAFE\[\"DATABASE\"\]"):
            marked(view, guard())


def test_receipts_beside_keys() -> None:
    """A guard of another profile has the same store, and the retention that its own setting says."""
    with override_settings(RETRYSAFE={"RETENTION": 60, "EFFECTS": "database"}, CALLBACK_RECEIPT_TTL_DAYS=2):
        assert guard().rules.policy.retention == 60
        receipts = guard("job-callbacks")
        assert receipts.rules.policy.retention == 2 * 86_400
        assert receipts.rules.policy.effects == "database"
        assert receipts is guard("job-callbacks")
        assert receipts is not guard()
        assert receipts.store is guard().store
    with (
        override_settings(CALLBACK_RECEIPT_TTL_DAYS="many"),
        pytest.raises(ConfigurationError, match="CALLBACK_RECEIPT_TTL_DAYS is 'many'"),
    ):
        guard("job-callbacks")


def test_a_guard_is_made_once() -> None:
    """A test that overrides what it was made of has another one, and afterwards the first is there again.

    Receipts and operations of the project's keep theirs, and go on joining the views of that guard.
    """
    assert guard() is guard()
    before = guard()
    with override_settings(RETRYSAFE={"RETENTION": 5}):
        assert guard() is not before
    assert guard() is before


def test_an_asynchronous_scope_is_refused() -> None:
    """Its function is called by views of both kinds."""
    with (
        override_settings(RETRYSAFE={"SCOPE": f"{__name__}.owner_async"}),
        pytest.raises(ConfigurationError, match="plain function"),
    ):
        guard().rules.request.scope(_request())


def test_what_cannot_be_decorated() -> None:
    """Classes have the mixin, and a Guard is a Guard."""
    with pytest.raises(ConfigurationError, match="IdempotentMixin"):
        idempotent(type("View", (), {}))
    with pytest.raises(ConfigurationError, match="expected a Guard"):
        idempotent(7)  # type: ignore[call-overload]  # which is refused
    with pytest.raises(ConfigurationError, match="effects"):
        idempotent(effects="nowhere")(lambda request: None)  # type: ignore[call-overload]  # which is refused

    async def view(request: HttpRequest) -> None: ...

    with pytest.raises(ConfigurationError, match="async def"):
        marked(idempotent(effects="database")(view), guard())
    assert IdempotentMixin.idempotency_options == {}
