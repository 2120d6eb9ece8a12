"""The workflows of this process, and the API that controls them: `GET /openapi.json` describes it."""

import contextlib
from collections.abc import AsyncGenerator

from dbos import DBOS, DBOSConfig
from starlette.applications import Starlette
from starlette.requests import Request

from examples.workflow_control.settings import DATABASE, KEYS, LEASE, SECRET, TOKENS
from examples.workflow_control.workflows import publish
from retrysafe import Guard, scopes
from retrysafe.operations.dbos import WorkflowControl
from retrysafe.operations.dbos.http import routes

config: DBOSConfig = {"name": "reports", "system_database_url": DATABASE, "log_level": "ERROR"}
DBOS(config=config)

guard = Guard(KEYS, scope=scopes.service("reports"), profile="workflow-control", secret=SECRET, lease=LEASE)
control = WorkflowControl(guard)


def caller(request: Request) -> str | None:
    """Whose key it is: the caller, and not the token, which may be replaced.  `None` is sent a 401."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return TOKENS.get(token) if kind == "Bearer" else None


@contextlib.asynccontextmanager
async def lifespan(_: Starlette) -> AsyncGenerator[None]:
    DBOS.launch()
    try:
        yield
    finally:
        await guard.drain_async()
        DBOS.destroy()
        guard.close()


app = Starlette(routes=routes(control, authenticate=caller, start={"publish": publish}), lifespan=lifespan)
