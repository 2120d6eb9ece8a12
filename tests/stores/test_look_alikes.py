"""What looks alike is not the same: keys, scopes, sources and subjects that differ by case, accent, form,
trailing space or their last character stay different on every store (S6).

Identities are digests, which no collation merges.  What stands beside them for operators is text, which a
database may compare, pad and cut in ways of its own: so it is asked for as operators do, too.
"""

import asyncio
import unicodedata
from collections.abc import Iterator
from contextlib import closing

import pytest

from retrysafe import Guard, stores
from retrysafe._core import keys
from retrysafe._core.model import Claim, Door, Found, Parts, Request, Reserved
from retrysafe.asgi import Middleware
from retrysafe.asgi.types import Connection, Receive, Send
from retrysafe.callbacks import AlreadyHandled, receipts
from retrysafe.stores.admin import Query
from retrysafe.stores.contract import Store
from retrysafe.testing.stores import a_claim, an_outcome
from tests.any_store import STORES
from tests.faults.wire import Heard, call, connection, fresh, respond

pytestmark = pytest.mark.parametrize("address", STORES, indirect=True)

CAFE = "café"

ALIKE = (
    unicodedata.normalize("NFC", CAFE),
    unicodedata.normalize("NFD", CAFE),
    "cafe",
    "Cafe",
    "CAFÉ",
    "café ",
    "café  ",
    "café\t",
    " café",
    "straße",
    "strasse",
    "ﬁn",
    "fin",
    "İd",
    "id",
    "Id",
    "1",
    "1.0",
    "01",
    "%",
    "_",
    "a*",
    "a\\",
    "a%",
    "🙂",
    "🙃",
    "x" * 254 + "y",
    "x" * 254 + "z",
    "x" * 254,
)
"""Each differs from all others, and some database takes two of them for the same."""

NO_TEXT = "café\0"
"""Records of it show an escape: PostgreSQL has no NUL in a text."""

LONG_PATH = "/" + "p" * 4094

KEYS = (
    "key",
    "Key",
    "KEY",
    '"key "',
    '" key"',
    '"key  "',
    "k" * 254 + "a",
    "k" * 254 + "b",
    "k" * 254,
    "key%",
    "key_",
    "key*",
    "0",
    "00",
    "0.0",
)
"""As clients send them: printable ASCII."""


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    with closing(stores.open(address, deadline=20.0)) as store:
        yield store


def test_a_guard_keeps_them_apart(store: Store) -> None:
    """Over HTTP: every owner with every key has an execution and a response of its own, and its retry gets
    that response.  The same key on a path that differs in the last of 4,000 characters is not replayed."""
    guard = Guard(store, scope=_tenant)
    bodies: dict[tuple[str, str], bytes] = {}
    executed: list[str] = []

    async def handle(scope: Connection, receive: Receive, send: Send) -> None:
        executed.append(fresh("payment"))
        await respond(send, 201, executed[-1].encode())

    app = Middleware(handle, guard)

    async def ask(tenant: str, key: str, path: str = LONG_PATH) -> Heard:
        scope = connection(path, key=key)
        scope["headers"] = [*scope["headers"], (b"x-owner", tenant.encode().hex().encode())]
        return await call(app, scope, b"{}")

    async def play() -> None:
        pairs = [(tenant, KEYS[0]) for tenant in (*ALIKE, NO_TEXT)] + [(ALIKE[0], key) for key in KEYS[1:]]
        for pair in pairs:
            heard = await ask(*pair)
            assert (heard.status, heard.replayed) == (201, False), pair
            bodies[pair] = heard.body
        for pair in pairs:
            heard = await ask(*pair)
            assert (heard.status, heard.replayed, heard.body) == (201, True, bodies[pair]), pair
            other = await ask(*pair, path=LONG_PATH[:-1] + "q")
            assert (other.status, other.code) == (422, "key-reused"), pair
        assert len(executed) == len(set(bodies.values())) == len(pairs)

    asyncio.run(play())
    guard.close()


def _tenant(request: Request) -> dict[str, str]:
    return {"tenant": bytes.fromhex((request.header(b"x-owner") or b"").decode()).decode()}


def _claim(what: str, door: Door = "request") -> Claim:
    scope: Parts = (("tenant", what), ("user", "42"))
    return a_claim()._replace(
        id=keys.digest(door, scope, what),
        door=door,
        scope=scope,
        key=what,
        action=what,
        target=LONG_PATH + what,
        request_id=what,
        correlation_id=what,
    )


@pytest.mark.parametrize("door", ["request", "callback", "operation"])
def test_a_record_has_its_text_to_the_last_character(store: Store, door: Door) -> None:
    """Key, scope, action or source, target or subject and details come back as they were given."""
    claims = [_claim(what, door) for what in ALIKE]
    for claim in claims:
        assert store.reserve(claim) == Reserved(1), claim.key
    for claim in claims:
        details = (("status", claim.key or ""), ("error", (claim.key or "") * 40))
        assert store.finish(claim, an_outcome()._replace(details=details))
    for claim in claims:
        found = store.look(claim.id)
        assert isinstance(found, Found)
        record = found.record
        assert (record.scope, record.key, record.action) == (claim.scope, claim.key, claim.action)
        assert (record.target, record.request_id) == (claim.target, claim.request_id)
        assert record.correlation_id == claim.correlation_id
        assert dict(record.details) == {"status": claim.key, "error": (claim.key or "") * 40}


def test_an_operator_finds_the_one_that_was_meant(store: Store) -> None:
    """By key, scope, action, target, the beginning of a target, and request id: one record, and the right
    one."""
    claims = [_claim(what) for what in ALIKE]
    for claim in claims:
        assert store.reserve(claim) == Reserved(1)
        assert store.finish(claim, an_outcome())
    with closing(store.open_admin()) as admin:
        for claim in claims:
            for query in (
                Query(key=claim.key),
                Query(scope=claim.scope[:1]),
                Query(action=claim.action),
                Query(request_id=claim.request_id),
                Query(id=claim.id.hex()),
                *([] if claim.target.endswith("*") else [Query(target=claim.target)]),
            ):
                found = [sighting.record.id for sighting in admin.list(query)]
                assert found == [claim.id], (query, claim.key)
        begin_so = {claim.id for claim in claims if claim.target.startswith(LONG_PATH + "café")}
        found_so = {sighting.record.id for sighting in admin.list(Query(target=LONG_PATH + "café*"))}
        assert found_so == begin_so


def test_events_of_sources_and_subjects_that_look_alike(store: Store) -> None:
    """Each source handles each event once, whatever another one's name looks like."""
    guard = Guard(store, profile="job-callbacks")
    sources = [what for what in ALIKE if what.isprintable() and what == what.strip()]
    handled: list[tuple[str, str]] = []
    for source in sources:
        found = receipts(guard, source=source)
        for id in ("event", "Event"):
            event = {"run_id": source, "callback_id": id, "status": "success"}
            with found.handling(event):
                handled.append((source, id))
            with pytest.raises(AlreadyHandled) as again, found.handling(event):
                raise AssertionError("it was handled")
            assert (again.value.receipt.source, again.value.receipt.subject) == (source, source)
    assert len(handled) == 2 * len(sources)
    guard.close()
