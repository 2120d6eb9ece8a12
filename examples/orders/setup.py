"""Makes the tables and fills the shelves: `python -m examples.orders.setup`."""

from sqlalchemy import Engine, orm

from examples.orders.models import Base, Product

SHELVES = {"apples": (3, 1000), "bread": (5, 300), "cheese": (11, 100)}
"""What a product costs, and how many there are."""


def fill(engine: Engine) -> None:
    Base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        for name, (price, stock) in SHELVES.items():
            session.merge(Product(name=name, price=price, stock=stock))
        session.commit()


if __name__ == "__main__":
    from examples.orders.database import engine

    fill(engine)
