"""The control API over HTTP: bodies and statuses, authentication first, and hostile bytes."""

import asyncio
import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from urllib.parse import quote

import pytest
from dbos import DBOS, DBOSClient
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.testclient import TestClient

from retrysafe import ConfigurationError, Wire, profiles
from retrysafe.operations.dbos import WorkflowControl
from retrysafe.operations.dbos.http import LARGEST, Authenticate, routes
from tests.operations.dbos.conftest import Controls, Running
from tests.operations.dbos.workflows import impatient, open_to_all, report

CALLERS = {"Bearer a": "ann", "Bearer b": "bob"}


def by_token(request: Request) -> str | Response | None:
    if request.headers.get("authorization") == "Bearer suspended":
        return Response("suspended", 403)
    return CALLERS.get(request.headers.get("authorization", ""))


Serve = Callable[..., TestClient]


@pytest.fixture
def serve(control_with: Controls) -> Iterator[Serve]:
    clients: list[TestClient] = []

    def start(authenticate: Authenticate = by_token, *, start: Any = None, **said: Any) -> TestClient:
        app = Starlette(
            routes=routes(control_with(**said), authenticate=authenticate, start=start or {"report": report})
        )
        clients.append(TestClient(app, headers={"Authorization": "Bearer a"}, raise_server_exceptions=False))
        return clients[-1]

    yield start
    for client in clients:
        client.close()


@pytest.fixture
def api(serve: Serve) -> TestClient:
    return serve()


def keyed(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


def test_the_actions(api: TestClient, running: Running) -> None:
    """004-1 to 004-4, 004-15, 004-19, 004-20: each has its payload, and its replay the same with the flag."""
    workflow = running.finished()
    for action, body, status in (("cancel", {}, 200), ("resume", {}, 200), ("fork", {"start_step": 2}, 201)):
        first, again = (
            api.post(f"/workflows/{workflow}/{action}", json=body, headers=keyed(action)) for _ in range(2)
        )
        assert (first.status_code, again.status_code) == (status, status)
        assert first.json()["action"] == action
        assert first.json()["idempotency_replayed"] is False
        assert again.json() == {**first.json(), "idempotency_replayed": True}
        assert "Idempotent-Replayed" not in first.headers
        assert again.headers["Idempotent-Replayed"] == "true"
        assert running.forks(workflow) == ([again.json()["new_workflow_id"]] if action == "fork" else [])
    assert api.get("/health", headers={"Authorization": ""}).json()["status"] == "ok"


def test_start(api: TestClient) -> None:
    """A workflow that the application has listed, with its arguments by name."""
    body = {"workflow": "report", "arguments": {"pages": 2, "title": "sales"}}
    first, again = (api.post("/workflows", json=body, headers=keyed("k")) for _ in range(2))
    assert (first.status_code, again.json()["idempotency_replayed"]) == (201, True)
    assert DBOS.retrieve_workflow(first.json()["workflow_id"]).get_result() == "sales: 2 pages"
    body["arguments"] = {"pages": 3, "title": "sales"}
    assert api.post("/workflows", json=body, headers=keyed("k")).status_code == 409


def test_the_key_in_the_body(api: TestClient, running: Running) -> None:
    """`idempotency_key`, as an alternative; two keys are none."""
    path = f"/workflows/{running.finished()}/cancel"
    assert api.post(path, json={"idempotency_key": "k"}).status_code == 200
    assert api.post(path, headers=keyed('"k"')).json()["idempotency_replayed"]
    assert api.post(path, json={"idempotency_key": "k"}, headers=keyed("k")).json()["idempotency_replayed"]
    both = api.post(path, json={"idempotency_key": "l"}, headers=keyed("k"))
    assert (both.status_code, both.json()["code"]) == (400, "key-invalid")
    assert "two keys" in both.json()["detail"]
    spaced = api.post(path, json={"idempotency_key": " k\n"}, headers=keyed("k"))
    assert spaced.json()["idempotency_replayed"]


@pytest.mark.parametrize(
    ("key", "code"),
    [(None, "key-missing"), ("", "key-invalid"), ("  ", "key-invalid"), ("é" * 101, "key-invalid")]
    + [(bad, "key-invalid") for bad in (5, ["k"], {"k": 1}, True, "k" * 201, "\u0000")],
)
def test_keys_that_are_none(api: TestClient, running: Running, key: object, code: str) -> None:
    """004-5 to 004-8: 400 with a body that says what is wrong."""
    workflow = running.finished()
    reply = api.post(f"/workflows/{workflow}/fork", json={"start_step": 1, "idempotency_key": key})
    assert (reply.status_code, reply.json()["code"]) == (400, code)
    assert reply.headers["Content-Type"] == "application/problem+json"
    assert running.forks(workflow) == []


@pytest.mark.parametrize(("profile", "status"), [("workflow-control", 409), (None, 422)])
def test_a_mismatch(serve: Serve, running: Running, profile: str | None, status: int) -> None:
    """004-18: another `start_step`, action or workflow."""
    api, workflow = serve(profile=profile), running.finished()
    api.post(f"/workflows/{workflow}/fork", json={"start_step": 1}, headers=keyed("k"))
    for path, body in (
        (f"{workflow}/fork", {"start_step": 2}),
        (f"{workflow}/cancel", {}),
        ("other/fork", {"start_step": 1}),
    ):
        reply = api.post(f"/workflows/{path}", json=body, headers=keyed("k"))
        assert (reply.status_code, reply.json()["code"]) == (status, "key-reused")
        assert reply.headers["X-Should-Retry"] == "false"


def test_a_failure(api: TestClient, running: Running) -> None:
    """004-14, 004-17: a 500, and then 409 with the failure's type, message and time."""
    workflow = running.finished()
    running.execute(
        "CREATE TRIGGER full BEFORE INSERT ON workflow_status WHEN NEW.forked_from IS NOT NULL "
        "BEGIN SELECT RAISE(ABORT, 'the quota of forks is used up'); END"
    )
    path, body = f"/workflows/{workflow}/fork", {"start_step": 1}
    first = api.post(path, json=body, headers=keyed("k"))
    running.execute("DROP TRIGGER full")
    again = api.post(path, json=body, headers=keyed("k"))
    assert (first.status_code, first.json()["code"]) == (500, "handler-failed")
    assert "quota" in first.json()["detail"]
    assert "INSERT" not in first.text + again.text  # what was in the statement stays inside
    assert (again.status_code, again.json()["code"]) == (409, "previously-failed")
    previous = again.json()["previous"]
    assert (previous["type"], previous["message"]) == (
        "ControlFailed",
        "IntegrityError: the quota of forks is used up",
    )
    assert previous["at"]


def test_a_missing_workflow(api: TestClient) -> None:
    """404, also where DBOS says nothing; and the key is as good as new."""
    for action, body in (("cancel", {}), ("resume", {}), ("fork", {"start_step": 1})):
        for _ in range(2):
            reply = api.post(f"/workflows/nothing/{action}", json=body, headers=keyed("k"))
            assert (reply.status_code, reply.json()["code"]) == (404, "workflow-missing")


def test_an_id_with_a_slash(api: TestClient, running: Running) -> None:
    """Ids of DBOS may be any text."""
    reply = api.post("/workflows/2026/11/18/cancel", headers=keyed("k"))
    assert "'2026/11/18'" in reply.json()["detail"]


# --- who asks


def test_authentication_comes_first(serve: Serve, running: Running) -> None:
    """Before the body is read, the key is looked at, or anything is replayed."""
    api, workflow = serve(), running.finished()
    path = f"/workflows/{workflow}/cancel"
    api.post(path, headers=keyed("k"))
    for token, status in (("", 401), ("Bearer x", 401), ("Bearer suspended", 403)):
        for body in (b"", b"\xff", b"{" * 100):
            reply = api.post(path, content=body, headers={**keyed("k"), "Authorization": token})
            assert reply.status_code == status
    assert api.post(path, headers={**keyed("k"), "Authorization": ""}).headers["WWW-Authenticate"] == "Bearer"
    other = api.post(path, headers={**keyed("k"), "Authorization": "Bearer b"})
    assert other.json()["idempotency_replayed"] is False


def test_an_asynchronous_hook(serve: Serve, running: Running) -> None:
    """It may ask a service of its own."""

    async def who(request: Request) -> dict[str, str]:
        return {"tenant": "acme", "user": request.headers["authorization"]}

    reply = serve(who).post(f"/workflows/{running.finished()}/cancel", headers=keyed("k"))
    assert reply.status_code == 200


@pytest.mark.parametrize(("raised", "status"), [(RuntimeError("a secret"), 500), (HTTPException(418), 418)])
def test_a_hook_that_raises(serve: Serve, running: Running, raised: Exception, status: int) -> None:
    """Nothing is done, and what it says stays inside, unless it was raised to be sent."""

    def raises(request: Request) -> str:
        raise raised

    workflow = running.finished()
    reply = serve(raises).post(f"/workflows/{workflow}/fork", json={"start_step": 1}, headers=keyed("k"))
    assert reply.status_code == status
    assert "secret" not in reply.text
    assert running.forks(workflow) == []


def test_what_cannot_be_served(control_with: Controls, running: Running) -> None:
    """Workflows that clients could not start are refused when the routes are made."""
    client = DBOSClient(system_database_url=running.url)
    for control, workflow, message in (
        (control_with(), impatient, "impatient has a parameter 'wait'"),
        (control_with(), len, "not a workflow"),
        (control_with(client), report, "a DBOSClient does not have"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            routes(control, authenticate=by_token, start={"it": workflow})
    client.destroy()


def test_there_is_no_default(control: WorkflowControl) -> None:
    """An API that lets everyone in has to be written on purpose."""
    with pytest.raises(TypeError, match="authenticate"):
        routes(control)  # type: ignore[call-arg]  # that is it
    with pytest.raises(ConfigurationError, match="authenticate=None must be a function"):
        routes(control, authenticate=None)  # type: ignore[arg-type]  # the same
    assert "/workflows" not in [route.path for route in routes(control, authenticate=by_token)]


# --- hostile


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"\xff\xfe", "not a JSON object"),
        (b"{", "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"[" * 100_000, "not a JSON object"),
        (b'{"start_step": 1, "start_step": 2}', "a name twice"),
        (b'{"start_step": NaN}', "NaN is not JSON"),
        (b'{"start_step": 1e400}', "start_step is float"),
        (b'{"start_step": ' + b"9" * 5000 + b"}", "not a JSON object"),
        (b'{"start_step": 99999999999999999999}', "not valid"),
        (b'{"start_step": 1.5}', "start_step is float"),
        (b'{"start_step": "1"}', "start_step is str"),
        (b'{"start_step": true}', "start_step is bool"),
        (b'{"start_step": null}', "start_step is NoneType"),
        (b"{}", "start_step is missing"),
        (b'{"start_step": 1, "force": true}', "'force' is not a field"),
        (b'{"start_step": 1, "key": "k"}', "'key' is not a field"),
        (b'{"start_step": 1, "scope": "root"}', "'scope' is not a field"),
        (b'{"start_step": 1, "queue_name": "\\ud800"}', "queue_name"),
        (b'{"start_step": 1, "queue_name": "\\u0000"}', "queue_name"),
        (b'{"start_step": 1, "timeout_seconds": -1}', "timeout_seconds"),
        (b'{"start_step": 1, "replacement_children": {"": "a"}}', "workflow_id ''"),
    ],
)
def test_bodies_that_are_refused(api: TestClient, running: Running, body: bytes, says: str) -> None:
    """400 with what was found, and no key claimed."""
    path = f"/workflows/{running.finished()}/fork"
    reply = api.post(path, content=body, headers={**keyed("k"), "Content-Type": "application/json"})
    assert reply.status_code == 400
    assert says in reply.json()["detail"]
    assert api.post(path, json={"start_step": 1}, headers=keyed("k")).status_code == 201


def test_other_bodies(api: TestClient) -> None:
    """One that is too large, and one that a page in a browser may send without being asked."""
    large = api.post("/workflows/w/cancel", content=b" " * (LARGEST + 1), headers=keyed("k"))
    assert large.status_code == 413
    plain = api.post(
        "/workflows/w/cancel", content=b"{}", headers={**keyed("k"), "Content-Type": "text/plain"}
    )
    assert plain.status_code == 415


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"workflow": "os.system"}, "may be started: report"),
        ({"workflow": ["report"]}, "may be started: report"),
        ({"workflow": "report"}, "pages"),
        ({"workflow": "report", "arguments": []}, "must be an object"),
        ({"workflow": "report", "arguments": {"pages": 1, "key": "k"}}, "key"),
        ({"workflow": "report", "arguments": {"pages": 1, "scope": "root"}}, "scope"),
    ],
)
def test_starts_that_are_refused(api: TestClient, body: dict[str, Any], says: str) -> None:
    """Only what is listed, and only with its own arguments."""
    reply = api.post("/workflows", json=body, headers=keyed("k"))
    assert reply.status_code == 400
    assert says in reply.json()["detail"]


def test_arguments_that_are_refused(serve: Serve) -> None:
    """400 also where a workflow takes any of them: not those of the call itself, nor what is nested deep."""
    api = serve(start={"open": open_to_all})
    deep = json.dumps({"workflow": "open", "arguments": {"a": 0}}).replace("0", "[" * 300 + "]" * 300)
    bodies = [json.dumps({"workflow": "open", "arguments": {name: "1"}}) for name in ("key", "scope", "wait")]
    for body in (deep, *bodies):
        reply = api.post(
            "/workflows", content=body, headers={**keyed("k"), "Content-Type": "application/json"}
        )
        assert reply.status_code == 400, body
    assert api.post("/workflows", json={"workflow": "open"}, headers=keyed("k")).status_code == 201


def test_a_client_that_hangs_up(control: WorkflowControl) -> None:
    """In the middle of its body: that is no error of the application's, and leaves no traceback."""
    app = Starlette(routes=routes(control, authenticate=lambda request: "ann"))
    arriving: list[dict[str, Any]] = [
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return arriving.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/workflows/w/cancel", "query_string": b""}
    asyncio.run(app({**scope, "headers": [(b"content-type", b"application/json")]}, receive, send))
    assert sent[0]["status"] == 400


def test_bytes_of_all_kinds(api: TestClient) -> None:
    """None of them is a 500.  (Not by Hypothesis: it objects to the threads of DBOS, which draw numbers.)"""
    draw = Random(4)
    for _ in range(100):
        workflow = draw.randbytes(draw.randrange(12)) or b"w"
        fields = draw.sample(["start_step", "queue_name", "cancel_children", "idempotency_key", "x"], 2)
        values: list[Any] = [None, True, -1, 2**70, 0.5, "", "a\0", "\ud800", "é" * 9, [[]], {"a": {}}]
        body = json.dumps({name: draw.choice(values) for name in fields}).encode()
        if draw.random() < 0.5:
            at = draw.randrange(len(body))
            body = body[:at] + draw.randbytes(3) + body[at + 1 :]
        key = draw.randbytes(9).replace(b"\r", b"").replace(b"\n", b"")
        headers = {b"Idempotency-Key": key, b"Content-Type": b"application/json"}
        path = f"/workflows/{quote(workflow, safe='')}/{draw.choice(['cancel', 'resume', 'fork'])}"
        reply = api.post(path, content=body, headers=headers if draw.random() < 0.7 else {})
        assert 400 <= reply.status_code < 500, (path, headers, body)


# --- what it says of itself


@pytest.mark.parametrize("profile", [None, "workflow-control", "stripe"])
def test_the_documents(serve: Serve, profile: str | None) -> None:
    """An OpenAPI document that is one, and what holds for keys: each with the statuses of its profile."""
    from schemathesis import openapi

    api = serve(profile=profile)
    document = api.get("/openapi.json").json()
    loaded = openapi.from_dict(document)
    loaded.validate()
    mismatch = {"workflow-control": "409", "stripe": "400"}.get(profile or "", "422")
    fork = document["paths"]["/workflows/{workflow_id}/fork"]["post"]
    assert "key-reused" in fork["responses"][mismatch]["description"]
    assert fork["requestBody"]["content"]["application/json"]["schema"]["required"] == ["start_step"]
    said = api.get("/idempotency").json()
    assert said["states"][1] == ("succeeded" if profile == "workflow-control" else "completed")
    assert said["problems"]["key-reused"]["status"] == int(mismatch)
    assert ("previously-failed" in said["problems"]) is (profile is not None)
    page = api.get("/idempotency", headers={"Accept": "text/markdown"})
    assert (page.headers["content-type"], page.headers["vary"]) == ("text/markdown; charset=utf-8", "Accept")
    assert f"| {mismatch} | `key-reused` |" in page.text
    assert f"in the header `{said['key']['header']}`, or in the body as `idempotency_key`" in page.text


def test_under_a_prefix(control: WorkflowControl, running: Running) -> None:
    """Mounted below a path, addresses in its documents and problems lead there."""
    app = Starlette(routes=[Mount("/control", routes=routes(control, authenticate=by_token))])
    api = TestClient(app, headers={"Authorization": "Bearer a"})
    assert api.get("/control/openapi.json").json()["servers"] == [{"url": "/control"}]
    problem = api.post("/control/workflows/w/cancel").json()
    assert problem["type"] == "http://testserver/control/idempotency#key-missing"
    assert api.get("/control/idempotency").status_code == 200


def test_an_envelope_of_its_own(serve: Serve) -> None:
    """A wire that has its own form of problems has it here."""
    wire = profiles.wire("workflow-control")._replace(render_problem=lambda it: {"error": it.code})
    assert serve(wire=wire).post("/workflows/w/cancel").json() == {"error": "key-missing"}
    elsewhere = Wire(specification="https://docs.example/keys")
    reply = serve(wire=elsewhere).post("/workflows/w/cancel")
    assert reply.json()["type"] == "https://docs.example/keys#key-missing"
