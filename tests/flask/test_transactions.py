"""Exactly once with Flask-SQLAlchemy: `db.session` joins the transaction of a guarded call."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, abort, g, request
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import Connection, event, func, inspect, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from werkzeug.test import TestResponse

from retrysafe import Guard, current, scopes, stores
from retrysafe._core.attempt import running
from retrysafe.errors import ConfigurationError, NotJoined
from retrysafe.flask import Retrysafe, idempotent
from tests.flask.shop import KEY


class Base(DeclarativeBase):
    pass


class Payment(Base):
    __tablename__ = "payments"
    id: Mapped[int] = mapped_column(primary_key=True)
    amount: Mapped[int]


class Visit(Base):
    __tablename__ = "visits"
    id: Mapped[int] = mapped_column(primary_key=True)


class Bank:
    """An application factory's work: one `SQLAlchemy` object, and as many applications as it is asked for."""

    def __init__(self) -> None:
        self.db = db = SQLAlchemy(metadata=Base.metadata, session_options={"expire_on_commit": False})
        self.retrysafe = Retrysafe(db=db)
        self.apps: list[Flask] = []

    def app(self, url: str, *, counts_visits: bool = False, **config: Any) -> Flask:
        app = Flask("bank")
        app.config.update(
            SQLALCHEMY_DATABASE_URI=url,
            RETRYSAFE_SCOPE=scopes.header("X-Tenant"),
            RETRYSAFE_EFFECTS="database",
            **config,
        )
        self.db.init_app(app)
        self.retrysafe.init_app(app)
        db = self.db

        @app.before_request
        def count() -> None:
            db.session.scalar(select(func.count()).select_from(Visit))
            if counts_visits:
                db.session.add(Visit())
                db.session.flush()

        @app.post("/payments")
        @idempotent(required=True)
        def pay() -> tuple[dict[str, Any], int]:
            payment = Payment(amount=request.args.get("amount", 5, int))
            db.session.add(payment)
            db.session.commit()
            if "fail" in request.args:
                abort(int(request.args["fail"]))
            return {"id": payment.id, "attempt": current().number}, 201

        with app.app_context():
            db.create_all()
        self.apps.append(app)
        return app

    def payments(self, app: Flask) -> int:
        with app.app_context():
            return self.db.session.scalar(select(func.count()).select_from(Payment)) or 0

    def close(self) -> None:
        for app in self.apps:
            with app.app_context():
                self.db.session.remove()
                app.extensions["retrysafe"].guard.close()
                for engine in self.db.engines.values():
                    engine.dispose()


@pytest.fixture
def bank() -> Iterator[Bank]:
    bank = Bank()
    yield bank
    bank.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'bank.db'}"
    empty: str = request.getfixturevalue("database")
    return empty.replace("postgresql://", "postgresql+psycopg://")


def pay(app: Flask, path: str = "/payments", key: str = KEY) -> TestResponse:
    return app.test_client().post(path, headers={"Idempotency-Key": key, "X-Tenant": "7"})


def test_what_a_view_commits(bank: Bank, url: str) -> None:
    """It is committed with the response, though the session is removed before that."""
    app = bank.app(url)
    first, second = pay(app), pay(app)
    assert (first.status_code, second.data, second.headers["Idempotent-Replayed"]) == (
        201,
        first.data,
        "true",
    )
    assert bank.payments(app) == 1


@pytest.mark.parametrize(("status", "stays"), [(500, 0), (409, 1), (429, 0)])
def test_a_failure_after_its_own_commit(bank: Bank, url: str, status: int, stays: int) -> None:
    """What failed, or says that nothing was done, is undone, and the retry runs; a refusal is an outcome."""
    app = bank.app(url)
    assert pay(app, f"/payments?fail={status}").status_code == status
    assert bank.payments(app) == stays
    again = pay(app, f"/payments?fail={status}")
    assert (again.headers.get("Idempotent-Replayed") == "true") is bool(stays)
    if not stays:
        assert pay(app, "/payments?amount=7").status_code == 201
    assert bank.payments(app) == 1


def test_a_session_that_read_before_the_claim(bank: Bank, url: str) -> None:
    """Its connection is given back: a pool that is as large as the server has threads is large enough."""
    one = {"pool_size": 1, "max_overflow": 0, "pool_timeout": 0.5}
    app = bank.app(url, SQLALCHEMY_ENGINE_OPTIONS=one)
    assert [pay(app).status_code for _ in range(2)] == [201, 201]
    assert bank.payments(app) == 1


def test_what_was_read_before_the_claim(bank: Bank, url: str) -> None:
    """It is the same object in the view, with what `before_request` has changed in it."""
    app = bank.app(url)
    seen: list[int] = []

    @app.before_request
    def find() -> None:
        g.first = bank.db.session.get(Payment, 1)
        if g.first is not None and "raise" in request.args:
            g.first.amount += 1

    @app.post("/again")
    @idempotent
    def again() -> str:
        seen.append(inspect(g.first).expired_attributes == set())
        g.first.amount += 10
        bank.db.session.commit()
        return str(g.first.amount)

    pay(app)
    assert [pay(app, path, key=path).text for path in ("/again", "/again?raise=1")] == ["15", "26"]
    assert seen == [True, True]


@pytest.mark.parametrize(
    "holds",
    [
        "SELECT id FROM payments FOR UPDATE",
        "SELECT pg_advisory_xact_lock(1)",
        "UPDATE payments SET amount = 1",
        "WITH one AS (UPDATE payments SET amount = 1 RETURNING id) SELECT id FROM one",
    ],
)
def test_locks_that_were_taken_before_the_claim(bank: Bank, database: str, holds: str) -> None:
    """The view has another connection, which would wait for its own request's locks, and for ever."""
    app = bank.app(database.replace("postgresql://", "postgresql+psycopg://"))
    app.testing = True
    locking = list[int]()

    @app.before_request
    def lock() -> None:
        if locking:
            bank.db.session.execute(text(holds))

    assert pay(app).status_code == 201
    locking.append(1)
    with pytest.raises(NotJoined, match="before the key of this request was claimed"):
        pay(app, key="another")
    assert pay(app).headers["Idempotent-Replayed"] == "true"
    locking.clear()
    assert pay(app, key="another").status_code == 201


def test_settings_of_every_transaction(bank: Bank, database: str) -> None:
    """As for row-level security: the transaction of the call has them, and those before the claim as well."""
    app = bank.app(database.replace("postgresql://", "postgresql+psycopg://"))
    began: list[str] = []

    @event.listens_for(bank.db.session, "after_begin")
    def identify(_: object, __: object, connection: Connection) -> None:
        began.append("current" if running() else "before")
        connection.execute(text("SET LOCAL shop.tenant = '7'"))

    @app.post("/tenant")
    @idempotent
    def tenant() -> str:
        return bank.db.session.scalar(text("SELECT current_setting('shop.tenant')")) or ""

    assert (pay(app, "/tenant").text, began) == ("7", ["before", "current"])


def test_a_session_that_wrote_before_the_claim(bank: Bank, tmp_path: Path) -> None:
    """On SQLite its write lock would keep the reservation waiting: said at once, and nothing is done."""
    app = bank.app(f"sqlite:///{tmp_path / 'bank.db'}", counts_visits=True)
    app.testing = True
    with pytest.raises(ConfigurationError, match="wrote before the key"):
        pay(app)
    assert bank.payments(app) == 0


def test_a_session_that_wrote_before_the_claim_of_the_other_guard(bank: Bank, tmp_path: Path) -> None:
    """Of two guards, each knows what the request has done before its claim."""
    app = bank.app(f"sqlite:///{tmp_path / 'bank.db'}", counts_visits=True)
    app.testing = True
    with app.app_context():
        outer = Guard(stores.from_engine(bank.db.engine), scope=scopes.header("X-Tenant"))
    del app.config["RETRYSAFE_SCOPE"], app.config["RETRYSAFE_EFFECTS"]
    bank.apps.remove(app)
    inner = app.extensions["retrysafe"].guard
    Retrysafe(outer).init_app(app)
    app.post("/outer")(idempotent(outer)(lambda: "ran"))
    with pytest.raises(ConfigurationError, match="wrote before the key"):
        pay(app, "/outer")
    for guard in (inner, outer):
        guard.close()
    with app.app_context():
        bank.db.engine.dispose()


def test_several_applications(bank: Bank, tmp_path: Path) -> None:
    """Each has its own guard and database, as in tests that build one after the other."""
    one, other = (bank.app(f"sqlite:///{tmp_path / name}.db") for name in ("one", "other"))
    assert [pay(app).status_code for app in (one, other, one)] == [201, 201, 201]
    assert [bank.payments(app) for app in (one, other)] == [1, 1]
    assert one.extensions["retrysafe"].guard is not other.extensions["retrysafe"].guard


def test_a_context_that_is_kept(bank: Bank, url: str) -> None:
    """As by a fixture: the session outlives the calls that it joined, and goes on after each of them."""
    app = bank.app(url)

    @app.post("/read")
    @idempotent
    def read() -> str:
        bank.db.session.add(Payment(amount=1))
        bank.db.session.commit()
        return str(bank.db.session.scalar(select(func.count()).select_from(Payment)))

    with app.app_context():
        assert [pay(app, "/read", key).text for key in "1223"] == ["1", "2", "2", "3"]
        assert bank.db.session.scalar(select(func.count()).select_from(Payment)) == 3
        bank.db.session.remove()


def test_an_application_without_a_guard(bank: Bank, tmp_path: Path) -> None:
    """The same `db` serves it as ever."""
    bank.app(f"sqlite:///{tmp_path / 'one.db'}")
    plain = Flask("plain")
    plain.config["SQLALCHEMY_DATABASE_URI"] = f"sqlite:///{tmp_path / 'plain.db'}"
    bank.db.init_app(plain)
    with plain.app_context():
        bank.db.create_all()
        bank.db.session.add(Payment(amount=1))
        bank.db.session.commit()
        assert bank.db.session.scalar(select(func.count()).select_from(Payment)) == 1
        bank.db.session.remove()
        bank.db.engine.dispose()


def test_options_of_sessions_stay(bank: Bank, tmp_path: Path) -> None:
    app = bank.app(f"sqlite:///{tmp_path / 'bank.db'}")
    with app.app_context():
        assert bank.db.session().expire_on_commit is False
        bank.db.session.remove()
        bank.db.session.configure(autoflush=False)
        assert bank.db.session().autoflush is False


def test_listeners_of_sessions(bank: Bank, tmp_path: Path) -> None:
    """On `db.session`, from before `init_app` or after it: each hears of sessions that join."""
    heard: list[str] = []
    event.listen(bank.db.session, "after_flush", lambda *_: heard.append("before"))
    app = bank.app(f"sqlite:///{tmp_path / 'bank.db'}")
    event.listen(bank.db.session, "after_flush", lambda *_: heard.append("after"))
    assert (pay(app).status_code, heard) == (201, ["before", "after"])


def test_two_stores(bank: Bank, tmp_path: Path) -> None:
    """The records cannot be in a second store, and be committed with the data."""
    with pytest.raises(ConfigurationError, match="leave RETRYSAFE_STORE out"):
        bank.app(f"sqlite:///{tmp_path / 'bank.db'}", RETRYSAFE_STORE=f"sqlite:///{tmp_path / 'keys.db'}")


def test_another_database(bank: Bank, tmp_path: Path) -> None:
    """A guard whose records are elsewhere cannot commit them together: said when it is used."""
    app = Flask("bank")
    app.config["SQLALCHEMY_DATABASE_URI"] = f"sqlite:///{tmp_path / 'bank.db'}"
    bank.db.init_app(app)
    guard = Guard(f"sqlite:///{tmp_path / 'keys.db'}", scope=scopes.header("X-Tenant"), effects="database")
    with pytest.raises(ConfigurationError, match="shares no engine with the application"):
        Retrysafe(guard, app, db=bank.db)
    guard.close()


def test_a_guard_of_ones_own(bank: Bank, tmp_path: Path) -> None:
    """With a store on the engine of `db`; what is written elsewhere is refused, and not forgotten."""
    app = Flask("bank")
    app.testing = True
    app.config["SQLALCHEMY_DATABASE_URI"] = f"sqlite:///{tmp_path / 'bank.db'}"
    app.config["SQLALCHEMY_BINDS"] = {"log": f"sqlite:///{tmp_path / 'log.db'}"}
    bank.db.init_app(app)
    with app.app_context():
        bank.db.create_all()
        guard = Guard(stores.from_engine(bank.db.engine), scope=scopes.header("X-Tenant"), effects="database")
    Retrysafe(guard, app, db=bank.db)
    bank.apps.append(app)

    @app.post("/elsewhere")
    @idempotent(guard)
    def elsewhere() -> str:
        bank.db.session.execute(select(1), bind_arguments={"bind": bank.db.engines["log"]})
        return "read"

    with pytest.raises(NotJoined):
        pay(app, "/elsewhere")
