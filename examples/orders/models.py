"""What the shop stores: products, orders with their items, and what is still to be sent to the provider."""

from typing import ClassVar, Literal

from sqlalchemy import CheckConstraint, ForeignKey, String, UniqueConstraint, orm
from sqlalchemy.orm import Mapped, mapped_column, relationship

import retrysafe.sqlalchemy


class Base(orm.DeclarativeBase):
    # MySQL has no index on a text of any length.
    type_annotation_map: ClassVar = {str: String(255)}


# The tables of the guard are part of the schema: `create_all` makes them, and Alembic knows them.
retrysafe.sqlalchemy.tables(Base.metadata)


class Product(Base):
    __tablename__ = "products"
    __table_args__ = (CheckConstraint("stock >= 0"),)

    name: Mapped[str] = mapped_column(primary_key=True)
    price: Mapped[int]
    stock: Mapped[int]


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    cart: Mapped[str]
    """The customer's own name for it.  Not unique: that a request makes one order is the guard's doing."""
    total: Mapped[int]
    charge: Mapped[str]
    """The provider's id of the charge that pays for it."""
    state: Mapped[Literal["placed", "cancelled"]] = mapped_column(default="placed")
    items: Mapped[list["Item"]] = relationship(back_populates="order", order_by="Item.product")


class Item(Base):
    __tablename__ = "items"
    __table_args__ = (UniqueConstraint("order_id", "product"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))
    product: Mapped[str] = mapped_column(ForeignKey("products.name"))
    quantity: Mapped[int]
    order: Mapped[Order] = relationship(back_populates="items")


class Instruction(Base):
    """The outbox: what is to be sent to the provider about a charge, committed with the order."""

    __tablename__ = "outbox"

    id: Mapped[int] = mapped_column(primary_key=True)
    charge: Mapped[str]
    what: Mapped[Literal["capture", "refund"]]
    key: Mapped[str]
    """Sent twice with the same key, it is done once."""
    sent: Mapped[bool] = mapped_column(default=False)
