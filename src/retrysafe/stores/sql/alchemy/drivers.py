"""A store on SQLAlchemy's own connections, for engines of PostgreSQL with any driver but psycopg."""

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from retrysafe.stores.sql import statements
from retrysafe.stores.sql.alchemy.awaiting import Loops
from retrysafe.stores.sql.alchemy.crew import Crew
from retrysafe.stores.sql.alchemy.engines import AnyEngine, async_twin, twin
from retrysafe.stores.sql.alchemy.line import AsyncLine, Line
from retrysafe.stores.sql.alchemy.store import EngineStore
from retrysafe.stores.sql.operations import Operation
from retrysafe.stores.sql.postgresql import checks
from retrysafe.stores.sql.postgresql.trouble import Trouble

CONNECTIONS = 4
"""So many for each event loop, or in all for a driver that blocks.  Each does some thousand operations in a
second, so more of them would only wait for the same disk."""


def from_driver(engine: AnyEngine, deadline: float) -> EngineStore:
    if isinstance(engine, AsyncEngine):
        opener = AsyncOpener(engine)
        return EngineStore(engine, lambda size: Loops(opener, size, deadline), CONNECTIONS)
    blocking = Opener(engine)
    return EngineStore(engine, lambda size: Crew(blocking, size, deadline), CONNECTIONS)


class Opener:
    """Opens connections that may be used: their server was looked at, and has our tables."""

    def __init__(self, engine: Engine) -> None:
        self._engine = twin(engine)
        self._prepared = False

    def __call__(self) -> Line:
        line = Line.open(self._engine)
        try:
            self._ask(line, checks.inspect())
            if not self._prepared:
                self._ask(line, checks.prepare())
                self._prepared = True
        except Trouble as trouble:
            line.close()
            raise checks.refused(trouble) from None
        except BaseException:
            line.close()
            raise
        return line

    def _ask(self, line: Line, operation: Operation[None]) -> None:
        known = statements.load("postgresql")
        try:
            name, arguments = next(operation)
            while True:
                name, arguments = operation.send(line.execute(known[name], arguments))
        except StopIteration:
            return


class AsyncOpener:
    """The same for drivers that know coroutines only."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = async_twin(engine)
        self._prepared = False

    async def __call__(self) -> AsyncLine:
        line = await AsyncLine.open(self._engine)
        try:
            await self._ask(line, checks.inspect())
            if not self._prepared:
                await self._ask(line, checks.prepare())
                self._prepared = True
        except Trouble as trouble:
            line.cut()
            raise checks.refused(trouble) from None
        except BaseException:
            line.cut()
            raise
        return line

    async def _ask(self, line: AsyncLine, operation: Operation[None]) -> None:
        known = statements.load("postgresql")
        try:
            name, arguments = next(operation)
            while True:
                name, arguments = operation.send(await line.execute(known[name], arguments))
        except StopIteration:
            return
