"""Makes the tables, two tenants and their users, and fills the shelves: `python -m examples.erp.setup`."""

from sqlalchemy import Engine, orm, select
from werkzeug.security import generate_password_hash

from examples.erp.models import Base, Movement, Place, Product, Stock, Tenant, User

PASSWORD = "secret"
"""Of all users, to try it out."""

USERS = {"north": ["ann", "bob"], "south": ["ann", "cem"]}
"""Of each tenant."""

SHELVES = {"apples": 3, "bread": 5, "cheese": 11}
"""What is sold, and for how much."""

OPENING: dict[Place, int] = {"shop": 1_000, "warehouse": 10_000}
"""How many there are of each, and where."""


def fill(engine: Engine, users: dict[str, list[str]] = USERS) -> None:
    """Once: an ERP that has tenants is left alone."""
    Base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        if session.scalars(select(Tenant)).first() is None:
            password = generate_password_hash(PASSWORD)
            for name, names in users.items():
                tenant = Tenant(name=name)
                session.add(tenant)
                session.flush()
                session.add_all(User(tenant_id=tenant.id, name=user, password=password) for user in names)
                for product, price in SHELVES.items():
                    session.add(Product(tenant_id=tenant.id, name=product, price=price))
                    for place, count in OPENING.items():
                        session.add_all(_receive(tenant.id, place, product, count))
        session.commit()


def _receive(tenant: int, place: Place, product: str, count: int) -> list[Stock | Movement]:
    where = {"tenant_id": tenant, "place": place, "product": product}
    opened = Movement(**where, quantity=count, reason="opening", reference="opening")
    return [Stock(**where, on_hand=count), opened]


if __name__ == "__main__":
    from examples.erp.app import create_app
    from examples.erp.database import db

    with create_app().app_context():
        fill(db.engine)
