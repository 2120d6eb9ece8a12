"""The life of an ASGI application, and that of its guard with it."""

from asyncio import to_thread

from retrysafe.asgi.types import App, Connection, Message, Receive, Send
from retrysafe.guard import Guard


async def live(app: App, guard: Guard, scope: Connection, receive: Receive, send: Send) -> None:
    """Check the store when the application starts; when the last one with this guard stops, drain and close.

    Earlier would refuse the requests of the others, which still run.
    """
    life = object()

    async def receive_and_drain() -> Message:
        message = await receive()
        if message["type"] == "lifespan.startup":
            guard.lives.add(life)
            await guard.check_async()
        elif message["type"] == "lifespan.shutdown":
            guard.lives.discard(life)
            if not guard.lives:
                # Before the application is told: its handlers still need what it is going to close.
                await guard.drain_async()
        return message

    async def close_and_send(message: Message) -> None:
        if message["type"].startswith("lifespan.shutdown"):
            await close()  # now: a server that is sent this may end without another turn of the loop
        await send(message)

    async def close() -> None:
        guard.lives.discard(life)
        if guard.lives:
            return
        # It may be started again, as test suites do.
        guard.resume()
        if not guard.runtime.unfinished():
            await to_thread(guard.close)

    try:
        await app(scope, receive_and_drain, close_and_send)
    finally:
        await close()  # once more, for applications that send nothing; it does no harm
