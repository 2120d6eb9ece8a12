"""What the control API says of itself: an OpenAPI document, and what holds for its keys."""

from typing import Any

from retrysafe._core.problems import CATALOGUE, COMMON, Code
from retrysafe._http.openapi import PROBLEM, add_content, add_schemas
from retrysafe._http.specification import explain, retention_text
from retrysafe._http.specification_sections import TITLE
from retrysafe.operations.dbos.control import LONGEST_TIMEOUT
from retrysafe.policy import Rules

Document = dict[str, Any]

_NEVER = frozenset({"body-too-large", "replay-forbidden"})
"""Problems of a middleware, which this API has none of."""

_TEXT: Document = {"type": "string", "minLength": 1, "maxLength": 512}
_BODIES: dict[str, Document] = {
    "cancel": {
        "cancel_children": {
            "type": "boolean",
            "default": False,
            "description": "The workflows that it has started, too.",
        }
    },
    "resume": {"queue_name": {**_TEXT, "description": "The queue that it goes on in."}},
    "fork": {
        "start_step": {
            "type": "integer",
            "minimum": 1,
            "maximum": 2**31 - 1,
            "description": "Where the copy begins; what was completed before is copied.",
        },
        "application_version": {**_TEXT, "description": "Of the code that runs the copy."},
        "queue_name": {**_TEXT, "description": "The queue that the copy runs in."},
        "queue_partition_key": {**_TEXT, "description": "Its partition, if the queue has them."},
        "replacement_children": {
            "type": "object",
            "additionalProperties": _TEXT,
            "description": "Ids of started workflows, and of those that take their places in the copy.",
        },
        "timeout_seconds": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": LONGEST_TIMEOUT,
            "description": "After how long the copy is cancelled.",
        },
    },
}
_SUMMARIES = {
    "cancel": "Cancel a workflow",
    "resume": "Let a cancelled workflow go on",
    "fork": "Start a copy of a workflow at one of its steps",
    "start": "Start a workflow",
}


def describe_keys(rules: Rules) -> Document:
    """What a client may rely on, by the options in force."""
    wire = rules.wire
    return {
        "key": {
            "header": wire.key_header,
            "field": "idempotency_key",
            "format": f"1 to {wire.longest_key} bytes, without white space around them.",
            "advice": "One key for each action that you intend, and the same key with every retry of it.",
        },
        "comparison": "The action, the workflow and all other arguments; another one with the same key is "
        "refused with the problem key-reused.",
        "retention": {"seconds": rules.policy.retention, "text": retention_text(rules)},
        "states": [wire.word("in_progress"), wire.word("completed"), wire.word("failed")],
        "replays": "The stored payload, with idempotency_replayed true.",
        "problems": {
            code: {
                "status": wire.status(code),
                "retry": rules.rendering.problems.kinds[code].retry,
                **explain(code, rules),
            }
            for code in _possible(rules)
        },
    }


def instruct(rules: Rules) -> str:
    """The same for people and agents, as Markdown."""
    told = describe_keys(rules)
    key, wire = told["key"], rules.wire
    steps = (
        "Make one key, such as a UUID, for each action that you intend, and send it in the header "
        f"`{key['header']}`, or in the body as `{key['field']}`. It has {key['format']}",
        "If no response arrives, send exactly the same request again, with the same key: once the first one "
        "has succeeded, you get its stored payload, with `idempotency_replayed` true, and nothing is done "
        "again.",
        "Use a new key for a new intent, and for nothing else.",
    )
    broken_off = (
        "it is not known whether it took effect, and retries get `outcome-unknown`"
        if rules.policy.abandoned == "hold"
        else "send it again with the same key"
    )
    promises = (
        "An action takes effect once, however often it is sent with its key. If the service stops in the "
        f"middle, {broken_off}.",
        f"Compared are {told['comparison'][0].lower()}{told['comparison'][1:]}",
        told["retention"]["text"],
        "A key belongs to the caller who made it: the same key from another caller is a different key.",
        f"`GET /health` takes no key. The states of a record are {', '.join(told['states'])}.",
    )
    rows = [
        f"| {said['status']} | `{code}` | {said['meaning']} | {said['advice']} |"
        for code, said in told["problems"].items()
    ]
    parts = [
        f"# {TITLE}",
        "Requests that cancel, resume, fork or start a workflow take a key.",
        "\n".join(f"{number}. {text}" for number, text in enumerate(steps, 1)),
        "\n".join(f"- {text}" for text in promises),
        f"A replay has the header `{wire.replayed_header}: true`, too. A failure of the action is a 500. "
        "These are sent instead of a payload:",
        "\n".join(("| Status | Code | What happened | What to do |", "|---|---|---|---|", *rows)),
    ]
    return "\n\n".join(parts) + "\n"


def describe_api(rules: Rules, startable: list[str], root: str) -> Document:
    """The OpenAPI document of the routes."""
    paths: Document = {}
    if startable:
        fields: Document = {
            "workflow": {"type": "string", "enum": startable},
            "arguments": {"type": "object", "description": "The workflow's arguments by name."},
        }
        paths["/workflows"] = {"post": _operation("start", fields, ["workflow"], rules)}
    for action, fields in _BODIES.items():
        required = ["start_step"] if action == "fork" else []
        described = _operation(action, fields, required, rules)
        described["parameters"].insert(
            0, {"name": "workflow_id", "in": "path", "required": True, "schema": _TEXT}
        )
        described["responses"]["404"] = _problem_response("There is no such workflow.")
        paths[f"/workflows/{{workflow_id}}/{action}"] = {"post": described}
    paths["/health"] = {"get": _health()}
    document: Document = {
        "openapi": "3.1.0",
        "info": {"title": "Workflow control", "version": "1"},
        "paths": paths,
        "components": {"schemas": {"Controlled": _controlled_schema(), "Problem": _plain_schema()}},
    }
    if root:
        document["servers"] = [{"url": root}]
    add_schemas(document, rules)
    return document


def _possible(rules: Rules) -> list[Code]:
    """What this API may refuse with; what cannot come of its policy is left out."""
    impossible = {
        *_NEVER,
        *(() if rules.policy.failed != "retry" else ("previously-failed",)),
        *(() if rules.policy.abandoned == "hold" else ("outcome-unknown",)),
    }
    return [code for code in COMMON if code not in impossible]


def _operation(action: str, fields: Document, required: list[str], rules: Rules) -> Document:
    wire = rules.wire
    key: Document = {"type": "string", "minLength": 1, "maxLength": wire.longest_key}
    status = "201" if action in ("fork", "start") else "200"
    responses: Document = {
        status: {
            "description": "Done, now or by an earlier request with this key.",
            "headers": {
                wire.replayed_header: {
                    "description": "True on a replay.",
                    "schema": {"type": "string", "enum": ["true"]},
                }
            },
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Controlled"}}},
        },
        "401": _problem_response("The caller is not known."),
        "400": _problem_response("The request is not valid."),
        "413": _problem_response("The body is too large."),
        "415": _problem_response("The body is not application/json."),
    }
    for code in _possible(rules):
        _add_problem(responses, code, rules)
    return {
        "operationId": f"{action}_workflow",
        "summary": _SUMMARIES[action],
        "description": f"Needs a key, in the header or in the body. {retention_text(rules)}",
        "parameters": [
            {"name": wire.key_header, "in": "header", "required": False, "schema": key},
        ],
        "requestBody": {
            "required": bool(required),
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "properties": {**fields, "idempotency_key": key},
                        "additionalProperties": False,
                        **({"required": required} if required else {}),
                    }
                }
            },
        },
        "responses": responses,
    }


def _add_problem(responses: Document, code: Code, rules: Rules) -> None:
    said = explain(code, rules)
    text = f"`{code}`: {said['meaning']} {said['advice']}"
    response: Document = responses.setdefault(str(rules.wire.status(code)), {"description": ""})
    response["description"] = f"{response['description']} {text}".strip()
    if rules.wire.render_problem is None:
        add_content(response, "application/problem+json", {"$ref": f"#/components/schemas/{PROBLEM}"})
    else:
        add_content(response, "application/json", {"type": "object"})
    if CATALOGUE[code].retry:
        response.setdefault("headers", {})["Retry-After"] = {"schema": {"type": "integer", "minimum": 1}}


def _problem_response(description: str) -> Document:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": description, "content": {"application/problem+json": {"schema": schema}}}


def _health() -> Document:
    word: Document = {"type": "string", "enum": ["ok", "unavailable"]}
    schema: Document = {
        "type": "object",
        "required": ["status", "records", "workflows"],
        "properties": {"status": word, "records": word, "workflows": word},
    }
    content = {"application/json": {"schema": schema}}
    return {
        "operationId": "health",
        "summary": "Whether both databases respond; without a key",
        "responses": {
            "200": {"description": "Both respond.", "content": content},
            "503": {"description": "One of them does not.", "content": content},
        },
    }


def _controlled_schema() -> Document:
    return {
        "type": "object",
        "required": ["action", "workflow_id", "status", "idempotency_replayed"],
        "properties": {
            "action": {"type": "string", "enum": ["cancel", "resume", "fork", "start"]},
            "workflow_id": {"type": "string"},
            "status": {"type": "string", "description": "Of the workflow right after, as DBOS calls it."},
            "new_workflow_id": {"type": "string", "description": "Of a fork."},
            "idempotency_replayed": {"type": "boolean"},
        },
    }


def _plain_schema() -> Document:
    return {
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "code": {"type": "string"},
        },
    }
