"""Tells the provider what is certain: what the outbox holds was committed with the order that it belongs to.

It runs in a thread of its own, which is woken after a commit.  Should two processes tell the same thing, or
one of them die before it has noted that it did, the key sees to it that the provider does it once.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from threading import Event, Thread

import httpx
from fastapi import FastAPI
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from examples.orders import payments
from examples.orders.database import Session
from examples.orders.models import Instruction

log = logging.getLogger("shop")

_AGAIN = 5.0
"""Seconds until it looks by itself: for what could not be told, and for what a process that died has left."""

_news = Event()
wake = _news.set


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    Thread(target=_work, daemon=True).start()
    yield


def _work() -> None:
    while True:
        _news.clear()
        try:
            deliver()
        except (httpx.HTTPError, OperationalError) as error:
            log.warning("the provider could not be told everything: %s", error)
        _news.wait(_AGAIN)


def deliver() -> None:
    """Tell all that is there, in its order."""
    with Session(expire_on_commit=False) as session:
        waiting = session.scalars(select(Instruction).where(~Instruction.told).order_by(Instruction.id)).all()
        session.commit()  # nothing is locked while we talk
        for one in waiting:
            payments.tell(one.what, one.charge, one.key)
            one.told = True
            session.commit()
