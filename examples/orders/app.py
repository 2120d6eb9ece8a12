"""An order service.  Its handlers are written as if nothing ever went wrong."""

from typing import Annotated, Literal

from fastapi import Depends, FastAPI, Header, HTTPException
from pydantic import BaseModel, Field
from sqlalchemy import ColumnElement, and_, orm, select, update

from examples.orders import outbox, payments
from examples.orders.database import engine, get_session, guard
from examples.orders.models import Instruction, Item, Order, Product
from retrysafe import asgi, current

app = FastAPI(lifespan=outbox.lifespan)
app.add_middleware(asgi.Middleware, guard=guard)

Session = Annotated[orm.Session, Depends(get_session)]
Customer = Annotated[str, Header(alias="X-Customer")]


class Cart(BaseModel):
    cart: str
    items: dict[str, Annotated[int, Field(gt=0)]] = Field(min_length=1)


class Receipt(BaseModel):
    order: int
    total: int
    state: str


@app.post("/orders", status_code=201)
def place(cart: Cart, customer: Customer, session: Session) -> Receipt:
    """Reserve the money, then take the stock and write the order down: all of it, or nothing."""
    total = price(cart)
    # Before the session is used, so that nothing is locked meanwhile.  Should we die after it, the retry
    # calls again with the same key and gets the same charge.  Another amount would be another charge.
    try:
        charge = payments.charge(total, cart.cart, current().derive(f"charge {total}"))
    except payments.Declined:
        raise HTTPException(402, "the card was declined") from None
    for product, quantity in sorted(cart.items.items()):  # sorted: two carts never wait for each other
        take(session, product, quantity)
    items = [Item(product=product, quantity=quantity) for product, quantity in cart.items.items()]
    order = Order(customer=customer, cart=cart.cart, total=total, charge=charge, items=items)
    session.add(order)
    instruct(session, order, "capture")
    session.commit()
    return Receipt(order=order.id, total=order.total, state=order.state)


@app.post("/orders/{number}/cancel")
def cancel(number: int, customer: Customer, session: Session) -> Receipt:
    """Put the stock back and return the money."""
    order = session.scalar(select(Order).where(mine(number, customer)).with_for_update())
    if order is None:
        raise HTTPException(404, "you have no such order")
    if order.state == "cancelled":
        raise HTTPException(409, "it is cancelled already")
    order.state = "cancelled"
    for item in order.items:
        put_back = Product.stock + item.quantity
        session.execute(update(Product).where(Product.name == item.product).values(stock=put_back))
    instruct(session, order, "refund")
    session.commit()
    return Receipt(order=order.id, total=order.total, state=order.state)


@app.get("/orders/{number}")
def show(number: int, customer: Customer, session: Session) -> Receipt:
    order = session.scalar(select(Order).where(mine(number, customer)))
    if order is None:
        raise HTTPException(404, "you have no such order")
    return Receipt(order=order.id, total=order.total, state=order.state)


def price(cart: Cart) -> int:
    """What it costs.  Read apart: a session of the engine's is not part of what the guard commits."""
    with orm.Session(engine) as session:
        found = session.execute(select(Product.name, Product.price).where(Product.name.in_(cart.items)))
        prices: dict[str, int] = {row.name: row.price for row in found}
    unknown = cart.items.keys() - prices
    if unknown:
        raise HTTPException(404, f"we do not sell {', '.join(sorted(unknown))}")
    return sum(prices[name] * quantity for name, quantity in cart.items.items())


def take(session: orm.Session, product: str, quantity: int) -> None:
    """Take so many out of the stock.  If there are not enough, what was taken before is not taken either."""
    enough = update(Product).where(Product.name == product, Product.stock >= quantity)
    # MySQL returns no rows of an update: they are counted.
    taken = session.connection().execute(enough.values(stock=Product.stock - quantity))
    if taken.rowcount == 0:
        raise HTTPException(409, f"there is not enough {product}")


def mine(number: int, customer: str) -> ColumnElement[bool]:
    return and_(Order.id == number, Order.customer == customer)


def instruct(session: orm.Session, order: Order, what: Literal["capture", "refund"]) -> None:
    """Leave a note for the provider, and have it delivered as soon as it is certain."""
    session.add(Instruction(charge=order.charge, what=what, key=current().derive(what)))
    current().on_commit(outbox.wake)
