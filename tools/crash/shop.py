"""The shop: takes orders.  In transactional mode an order is two rows and an answer, and either all three are
there or none; in the others it is an effect outside, which nothing takes back."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.routing import Route

from retrysafe import Guard
from retrysafe.asgi import Middleware
from retrysafe.asgi.types import App
from tools.crash.application import AwaitedOutside, Desk, Outside
from tools.crash.journal import Journal
from tools.crash.modes import EFFECTS, Mode
from tools.crash.targets import Target
from tools.crash.traps import Trapped


def build(
    target: type[Target], url: str, way: str, mode: Mode, lease: float, journal: Journal
) -> tuple[App, Guard]:
    guard = Guard(target.open(url, way), scope=lambda _: "crash", effects=EFFECTS[mode], lease=lease)
    desk: Desk
    if mode == "tx":
        desk = target.desk(guard, url, way)
    elif way.endswith("async"):
        desk = AwaitedOutside(journal)
    else:
        desk = Outside(journal)

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncGenerator[None]:
        async with desk.living():
            yield

    shop = Starlette(routes=[Route("/orders", desk.endpoint(), methods=["POST"])], lifespan=lifespan)
    return Trapped(Middleware(shop, guard), journal), guard
