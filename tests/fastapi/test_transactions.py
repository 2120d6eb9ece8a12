"""Exactly once with SQLAlchemy and SQLModel: sessions of dependencies, used before the claim and after it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, HTTPException
from fastapi.testclient import TestClient
from sqlalchemy import Engine, create_engine, func, select
from sqlmodel import Field, Session, SQLModel

from retrysafe import Guard, scopes, stores
from retrysafe.errors import ConfigurationError
from retrysafe.fastapi import idempotent, protect
from retrysafe.sqlalchemy import sessionmaker
from tests.fastapi.shop import KEY


class Account(SQLModel, table=True):
    name: str = Field(primary_key=True)
    visits: int = 0


class Payment(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True)
    account: str
    amount: int


class Bank:
    """An application whose authentication and endpoints use one session."""

    def __init__(self, engine: Engine, *, counts_visits: bool = False) -> None:
        self.engine = engine
        SQLModel.metadata.create_all(engine)
        with Session(engine) as session:
            session.add(Account(name="alice"))
            session.commit()
        self.guard = Guard(
            stores.from_engine(engine), scope=scopes.argument("account.name"), effects="database"
        )
        make = sessionmaker(self.guard, class_=Session)
        self.app = app = FastAPI()
        protect(app, self.guard)
        self.fail = False

        def database() -> Iterator[Session]:
            with make() as session:
                yield session

        def signed_in(db: Annotated[Session, Depends(database)]) -> Account:
            account = db.get(Account, "alice")
            assert account is not None
            if counts_visits:
                account.visits += 1
                db.add(account)
                db.flush()
            return account

        @app.post("/payments", status_code=201)
        @idempotent(self.guard, required=True)
        def pay(
            amount: int,
            account: Annotated[Account, Depends(signed_in)],
            db: Annotated[Session, Depends(database)],
        ) -> dict[str, Any]:
            payment = Payment(account=account.name, amount=amount)
            db.add(payment)
            db.commit()
            if self.fail:
                raise HTTPException(500, "after its commit")
            return {"id": payment.id, "amount": amount}

    def payments(self) -> int:
        with Session(self.engine) as session:
            return session.scalar(select(func.count()).select_from(Payment)) or 0

    @property
    def client(self) -> TestClient:
        return TestClient(self.app, raise_server_exceptions=False)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path / 'bank.db'}")
    yield engine
    engine.dispose()


def pay(client: TestClient, key: str = KEY) -> Any:
    return client.post("/payments?amount=5", headers={"Idempotency-Key": key})


def test_a_session_that_authentication_has_read_with(engine: Engine) -> None:
    """It joins the transaction of the call: what the endpoint commits is committed with its response."""
    bank = Bank(engine)
    with bank.client as client:
        first, second = pay(client), pay(client)
    assert (first.status_code, second.content) == (201, first.content)
    assert second.headers["idempotent-replayed"] == "true"
    assert bank.payments() == 1


def test_a_failure_after_its_own_commit(engine: Engine) -> None:
    """It is undone with everything else, and the retry runs."""
    bank = Bank(engine)
    bank.fail = True
    with bank.client as client:
        assert pay(client).status_code == 500
        assert bank.payments() == 0
        bank.fail = False
        assert pay(client).status_code == 201
    assert bank.payments() == 1


def test_a_session_that_authentication_has_written_with(engine: Engine) -> None:
    """On SQLite its write lock would keep the reservation waiting: said at once, and nothing is done."""
    bank = Bank(engine, counts_visits=True)
    with TestClient(bank.app) as client, pytest.raises(ConfigurationError, match="wrote before the key"):
        pay(client)
    assert bank.payments() == 0
