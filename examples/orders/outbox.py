"""Sends instructions to the provider: each was committed with the order that it belongs to.

It runs in a thread of its own, which is woken after a commit.  If two processes send the same instruction, or
one of them dies before it has noted that it did, the key makes the provider do it once.
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
"""Seconds until it looks by itself: for what could not be sent, and for what a process that died has left."""

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
            log.warning("not all instructions could be sent to the provider: %s", error)
        _news.wait(_AGAIN)


def deliver() -> None:
    """Send all instructions that were not sent yet, in their order."""
    with Session(expire_on_commit=False) as session:
        waiting = session.scalars(select(Instruction).where(~Instruction.sent).order_by(Instruction.id)).all()
        session.commit()  # nothing is locked while the provider is called
        for one in waiting:
            payments.send(one.what, one.charge, one.key)
            one.sent = True
            session.commit()
