"""An HTTP API for the control of workflows, as routes for a Starlette application.

    app = Starlette(routes=routes(control, authenticate=caller_of))

Every request but `GET /health` and the two that describe the API is authenticated first: `authenticate` says
who the caller is, which is whose key it is, or gives the response to send instead.  The key is in the header
of the guard's wire or in the body's `idempotency_key`.
"""

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn, cast

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from retrysafe._core import model
from retrysafe._core.decisions import admit
from retrysafe._core.problems import Problem
from retrysafe._http import render
from retrysafe._http.publish import JSON, MARKDOWN, negotiate
from retrysafe.errors import ConfigurationError
from retrysafe.events import log
from retrysafe.operations import Failure, Refused
from retrysafe.operations.dbos.control import WorkflowControl, name_of_workflow
from retrysafe.operations.dbos.describe import describe_api, describe_keys, instruct
from retrysafe.operations.dbos.results import (
    ControlFailed,
    Controlled,
    ControlUnavailable,
    InvalidArgument,
    WorkflowMissing,
)
from retrysafe.operations.decorate import TAKEN
from retrysafe.policy import MIB
from retrysafe.scopes import ScopeAnswer

Authenticate = Callable[[Request], "ScopeAnswer | Response | Awaitable[ScopeAnswer | Response]"]
"""Who the caller is; or a response, such as a 401 or a 403, that is sent instead.  `None` is a 401."""

LARGEST = MIB
"""Bytes of a body: arguments of a workflow, not its data."""

KEY_FIELD = "idempotency_key"

_FIELDS = {
    "cancel": frozenset({"cancel_children"}),
    "resume": frozenset({"queue_name"}),
    "fork": frozenset(
        {
            "start_step",
            "application_version",
            "queue_name",
            "queue_partition_key",
            "replacement_children",
            "timeout_seconds",
        }
    ),
    "start": frozenset({"workflow", "arguments"}),
}


def routes(
    control: WorkflowControl,
    *,
    authenticate: Authenticate,
    start: Mapping[str, Callable[..., object]] | None = None,
) -> list[Route]:
    """The routes of the control API.

    `start` has the workflows that clients may start, by the names that they know them by; without it there is
    no such route.
    """
    if not callable(authenticate):
        raise ConfigurationError(
            f"authenticate={authenticate!r} must be a function of the request that returns the caller's id, "
            "or a response such as a 401"
        )
    if start and not isinstance(control.workflows, type):
        raise ConfigurationError(
            "start= needs the code of workflows, which a DBOSClient does not have: leave it out, or control "
            "the workflows of this process"
        )
    for workflow in (start or {}).values():
        name_of_workflow(workflow)
    api = _API(control, authenticate, dict(start or {}))
    served = [
        Route("/workflows/{workflow_id:path}/cancel", api.cancel, methods=["POST"]),
        Route("/workflows/{workflow_id:path}/resume", api.resume, methods=["POST"]),
        Route("/workflows/{workflow_id:path}/fork", api.fork, methods=["POST"]),
        Route("/health", api.health, methods=["GET"]),
        Route("/openapi.json", api.openapi, methods=["GET"]),
    ]
    if start:
        served.insert(0, Route("/workflows", api.start, methods=["POST"]))
    if control.guard.wire.specification.startswith("/"):
        served.append(Route(control.guard.wire.specification, api.specification, methods=["GET"]))
    return served


class _Rejected(Exception):
    """A request that is not one: what is wrong with it, and how it is said."""

    def __init__(self, status: int, title: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.detail = detail

    def response(self) -> Response:
        return _plain(self.status, self.title, self.detail)


def _bad(detail: str) -> NoReturn:
    raise _Rejected(400, "Bad request", detail)


class _API:
    """The endpoints, of one control."""

    def __init__(
        self,
        control: WorkflowControl,
        authenticate: Authenticate,
        startable: Mapping[str, Callable[..., object]],
    ) -> None:
        self._control = control
        self._authenticate = authenticate
        self._startable = startable
        self._rules = control.rules

    async def cancel(self, request: Request) -> Response:
        return await self._serve(request, "cancel", 200)

    async def resume(self, request: Request) -> Response:
        return await self._serve(request, "resume", 200)

    async def fork(self, request: Request) -> Response:
        return await self._serve(request, "fork", 201)

    async def start(self, request: Request) -> Response:
        return await self._serve(request, "start", 201)

    async def health(self, request: Request) -> Response:  # noqa: ARG002 - of every caller
        found = await self._control.health_async()
        return JSONResponse(found.payload(), 200 if found.ok else 503, _UNCACHED)

    async def openapi(self, request: Request) -> Response:
        document = describe_api(self._rules, sorted(self._startable), request.scope.get("root_path", ""))
        return JSONResponse(document, headers=_UNCACHED)

    async def specification(self, request: Request) -> Response:
        """Data, or Markdown for whoever asks for it."""
        headers = {**_UNCACHED, "Vary": "Accept"}
        accept = [value.encode("latin-1") for value in request.headers.getlist("accept")]
        if negotiate(accept, (JSON, MARKDOWN)) == JSON:
            return JSONResponse(describe_keys(self._rules), headers=headers)
        return Response(instruct(self._rules), headers=headers, media_type=MARKDOWN)

    async def _serve(self, request: Request, action: str, status: int) -> Response:
        try:
            caller = self._authenticate(request)
            if isinstance(caller, Awaitable):
                caller = await caller
            if isinstance(caller, Response):
                return caller
            if caller is None:
                return _plain(401, "Unauthorized", "The caller is not known: authenticate.")
            fields = await _read(request)
            key = self._key(request, fields)
            if isinstance(key, Problem):
                return self._problem(request, key)
            if unknown := sorted(fields.keys() - _FIELDS[action]):
                known = ", ".join(sorted({*_FIELDS[action], KEY_FIELD}))
                _bad(f"{unknown[0][:64]!r} is not a field of this request: there are {known}.")
            done = await self._do(action, request.path_params.get("workflow_id", ""), fields, key, caller)
        except _Rejected as rejected:
            return rejected.response()
        except InvalidArgument as wrong:
            return _plain(400, "Bad request", f"{wrong}.")
        except Refused as refused:
            return self._problem(request, refused.problem._replace(detail=refused.detail), refused.failure)
        except WorkflowMissing as missing:
            return _plain(404, "Workflow not found", str(missing), code="workflow-missing")
        except ControlUnavailable as unavailable:
            log.warning("workflow control: %s was not done: %s", action, unavailable)
            problem = Problem("not-done", "The workflows could not be reached.", unavailable.retry_after)
            return self._problem(request, problem)
        except ControlFailed as failed:
            log.error("workflow control: %s failed: %s", action, failed, exc_info=failed)
            return self._problem(request, Problem("handler-failed", f"The request failed: {failed}."))
        headers = {**_UNCACHED, **({self._rules.wire.replayed_header: "true"} if done.replayed else {})}
        return JSONResponse(done.payload(), status, headers)

    async def _do(
        self, action: str, workflow_id: str, fields: dict[str, Any], key: str | None, caller: ScopeAnswer
    ) -> Controlled:
        control = self._control
        about: dict[str, Any] = {"key": key, "scope": caller}
        match action:
            case "cancel":
                return await control.cancel_workflow_async(workflow_id, **about, **fields)
            case "resume":
                return await control.resume_workflow_async(workflow_id, **about, **fields)
            case "fork":
                if "start_step" not in fields:
                    _bad("start_step is missing: say at which step the copy begins, from 1.")
                return await control.fork_workflow_async(workflow_id, **about, **fields)
            case _:
                workflow, arguments = self._startables(fields)
                return await control.start_workflow_async(workflow, **about, **arguments)

    def _startables(self, fields: dict[str, Any]) -> tuple[Callable[..., object], dict[str, Any]]:
        name, arguments = fields.get("workflow"), fields.get("arguments", {})
        workflow = self._startable.get(name) if isinstance(name, str) else None
        if workflow is None:
            _bad(f"workflow must be the name of one that may be started: {', '.join(self._startable)}.")
        if not isinstance(arguments, dict):
            _bad("arguments must be an object: the workflow's arguments by name.")
        named = cast("dict[str, Any]", arguments)
        if taken := sorted(TAKEN & named.keys()):  # as a workflow with **arguments would let through
            _bad(f"arguments cannot have the name {taken[0]!r}.")
        try:
            inspect.signature(workflow).bind(**named)
        except TypeError as wrong:
            _bad(f"arguments do not fit the workflow: {wrong}.")
        return workflow, named

    def _key(self, request: Request, fields: dict[str, Any]) -> "str | Problem | None":
        """The key of a request, from its header or its body; both may have it if they agree."""
        in_body = fields.pop(KEY_FIELD, None)
        head = _head(request)
        if self._rules.names.key not in head.fields:
            return cast("str | None", in_body)  # checked with the call, whatever it is
        key = admit(head, self._rules)
        if isinstance(key, str) and in_body is not None and not _is_same(in_body, key):
            header = self._rules.wire.key_header
            return Problem(
                "key-invalid", f"The header {header} and {KEY_FIELD} are two keys: send one of them."
            )
        return key

    def _problem(self, request: Request, problem: Problem, failure: Failure | None = None) -> Response:
        status, headers, body = render.describe(_head(request), self._rules, problem)
        if failure is not None and self._rules.wire.render_problem is None:
            document = json.loads(body)
            document["previous"] = failure._asdict()
            body = json.dumps(document).encode()
        sent = {name.decode(): value.decode() for name, value in headers if name != b"content-length"}
        return Response(body, status, sent)


def _head(request: Request) -> model.Request:
    """A request of Starlette as the rest of this library reads it."""
    scope = request.scope
    return model.Request(
        request.method,
        scope["path"],
        scope["query_string"],
        [(bytes(name).lower(), bytes(value)) for name, value in scope["headers"]],
        scope.get("scheme", "http"),
        root=scope.get("root_path", ""),
    )


def _is_same(in_body: object, key: str) -> bool:
    return isinstance(in_body, str) and in_body.strip() == key


_UNCACHED = {"Cache-Control": "no-store"}


def _plain(status: int, title: str, detail: str, **more: str) -> Response:
    """A problem that is not about a key (RFC 9457)."""
    document = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    headers = {**_UNCACHED, **({"WWW-Authenticate": "Bearer"} if status == 401 else {})}
    return Response(json.dumps(document), status, headers, "application/problem+json")


async def _read(request: Request) -> dict[str, Any]:
    """The fields of a body, which may be empty."""
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > LARGEST:
                raise _Rejected(413, "Body too large", f"The body is larger than {LARGEST} bytes.")
    except ClientDisconnect:  # no response will arrive, and it is no error of the application's
        _bad("The body ends before its end.")
    if not body.strip():
        return {}
    # Else any page that a browser shows could send one, with the caller's cookies and without asking (CORS).
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise _Rejected(415, "Unsupported media type", "Send the body as application/json.")
    try:
        found = json.loads(body, object_pairs_hook=_without_doubles, parse_constant=_no_constant)
    except (ValueError, RecursionError) as wrong:
        reason = str(wrong) if isinstance(wrong, _NotTaken) else "it cannot be read"
        _bad(f"The body is not a JSON object: {reason}.")
    if not isinstance(found, dict):
        _bad("The body is not a JSON object.")
    return cast("dict[str, Any]", found)


class _NotTaken(ValueError):
    """JSON that readers understand differently."""


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _NotTaken("it has a name twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise _NotTaken(f"{name} is not JSON")
