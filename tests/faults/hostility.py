"""What the hostile tests share: how much they try, a counting application, and what headers must not hold."""

import os
import re

from hypothesis import HealthCheck, settings

from retrysafe.asgi.types import Connection, Receive, Send
from tests.faults.wire import Heard, fresh, respond

LONG = "RETRYSAFE_LONG" in os.environ
EXAMPLES = 2000 if LONG else 120

hostile = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

FORBIDDEN = re.compile(rb"[\r\n\0]")


class Counting:
    """An application that reads everything and counts its runs."""

    def __init__(self) -> None:
        self.runs = 0

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        self.runs += 1
        while (await receive()).get("more_body"):
            pass
        await respond(send, 201, fresh("answer").encode())


def assert_clean(heard: Heard) -> None:
    for name, value in heard.headers:
        assert not FORBIDDEN.search(name), (name, value)
        assert not FORBIDDEN.search(value), (name, value)
