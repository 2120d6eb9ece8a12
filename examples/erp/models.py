"""What the ERP stores, for every tenant: who works there, stock and its movements, bills, payments.

No reference is unique, and a bill may be paid in parts: that a request is entered once is the guard's doing
alone, and `audit.py` would see it if it were not.
"""

from typing import ClassVar, Literal

from sqlalchemy import CheckConstraint, ForeignKey, String, Text, UniqueConstraint, orm
from sqlalchemy.dialects.mysql import MEDIUMTEXT
from sqlalchemy.orm import Mapped, mapped_column, relationship

import retrysafe.sqlalchemy


class Base(orm.DeclarativeBase):
    # MySQL has no index on a text of any length.
    type_annotation_map: ClassVar = {str: String(255)}


# The tables of the guard are part of the schema: `create_all` makes them, and Alembic knows them.
retrysafe.sqlalchemy.tables(Base.metadata)


class Tenant(Base):
    __tablename__ = "tenants"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)


class User(Base):
    """A user of one tenant.  The properties are what Flask-Login asks for."""

    __tablename__ = "users"
    __table_args__ = (UniqueConstraint("tenant_id", "name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    name: Mapped[str]
    password: Mapped[str]
    """Its hash."""
    tenant: Mapped[Tenant] = relationship(lazy="joined")

    is_authenticated = True
    is_active = True
    is_anonymous = False

    def get_id(self) -> str:
        return str(self.id)


class Product(Base):
    __tablename__ = "products"

    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    price: Mapped[int]
    """In cents, as all amounts."""


Place = Literal["shop", "warehouse"]


class Stock(Base):
    """How many of a product are in a place.  Never below zero."""

    __tablename__ = "stock"
    __table_args__ = (CheckConstraint("on_hand >= 0"),)

    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    place: Mapped[Place] = mapped_column(primary_key=True)
    product: Mapped[str] = mapped_column(primary_key=True)
    on_hand: Mapped[int]


class Movement(Base):
    """Why stock has changed."""

    __tablename__ = "movements"

    id: Mapped[int] = mapped_column(primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    place: Mapped[Place]
    product: Mapped[str]
    quantity: Mapped[int]
    """What came in; below zero: what left."""
    reason: Mapped[Literal["opening", "sale", "order", "transfer", "count"]]
    reference: Mapped[str]
    """The document that says so."""
    bill_id: Mapped[int | None] = mapped_column(ForeignKey("bills.id"))


class Bill(Base):
    """What a customer owes: for a sale in the shop, or for an order from the warehouse."""

    __tablename__ = "bills"

    id: Mapped[int] = mapped_column(primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    kind: Mapped[Literal["sale", "order"]]
    reference: Mapped[str]
    """The number of the receipt, or the customer's own number of the order."""
    # MySQL's TEXT ends at 64 KiB.
    remarks: Mapped[str] = mapped_column(Text().with_variant(MEDIUMTEXT(), "mysql", "mariadb"))
    total: Mapped[int]
    lines: Mapped[list["Line"]] = relationship(back_populates="bill", order_by="Line.id")
    payments: Mapped[list["Payment"]] = relationship(back_populates="bill", order_by="Payment.id")


class Line(Base):
    __tablename__ = "lines"

    id: Mapped[int] = mapped_column(primary_key=True)
    bill_id: Mapped[int] = mapped_column(ForeignKey("bills.id"))
    reference: Mapped[str]
    """The document that asked for it: the bill's own, or that of a later change."""
    product: Mapped[str]
    quantity: Mapped[int]
    price: Mapped[int]
    bill: Mapped[Bill] = relationship(back_populates="lines")


class Payment(Base):
    __tablename__ = "payments"

    id: Mapped[int] = mapped_column(primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenants.id"))
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    bill_id: Mapped[int] = mapped_column(ForeignKey("bills.id"))
    receipt: Mapped[str]
    amount: Mapped[int]
    charge: Mapped[str | None]
    """The card provider's id of it; none: cash."""
    bill: Mapped[Bill] = relationship(back_populates="payments")
