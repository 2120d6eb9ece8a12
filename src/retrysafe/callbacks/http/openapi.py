"""What an OpenAPI document says about an endpoint that takes deliveries.

A framework describes what it reads itself; of a body that is read here, and of what a sender is told that
does not come from the handler, it knows nothing.  Documents are JSON, so these are plain dictionaries.
"""

from collections.abc import Callable
from typing import Any, cast

from retrysafe._core.problems import OF_CALLBACKS, Code
from retrysafe._http.openapi import PROBLEM, add_content, problem_schema
from retrysafe.callbacks.payload import Payload
from retrysafe.callbacks.receipts import Receipts

Document = dict[str, Any]

_RAW: tuple[object, ...] = (Payload, bytes)
"""Types of events that have no schema, because they are not read as JSON."""

ACKNOWLEDGEMENT = "CallbackAcknowledgement"
"""The name of the schema of what a duplicate gets."""


def describe_endpoint(receipts: Receipts[Any], kind: object) -> Callable[[Document, Document], None]:
    """What adds to a document and to an operation in it; `kind`: of the body, where it is read here."""

    def describe(document: Document, operation: Document) -> None:
        schemas: Document = document.setdefault("components", {}).setdefault("schemas", {})
        if kind is not None:
            content = {_media_type(kind): {"schema": _schema_of(kind, schemas)}}
            operation.setdefault("requestBody", {"required": True, "content": content})
        responses: Document = operation.setdefault("responses", {})
        schemas.setdefault(ACKNOWLEDGEMENT, _ACKNOWLEDGEMENT)
        _add(responses, 200, "The event was handled before.", ACKNOWLEDGEMENT)
        if receipts.inbox:
            _add(responses, 202, "The event is stored, and will be handled.", ACKNOWLEDGEMENT)
        if receipts.rules.wire.render_problem is None:
            codes = schemas.setdefault(PROBLEM, problem_schema())["properties"]["code"]["enum"]
            codes += sorted(OF_CALLBACKS.difference(codes))
        _add_problems(responses, receipts)

    return describe


def _media_type(kind: object) -> str:
    return "application/octet-stream" if kind in _RAW else "application/json"


def _schema_of(kind: object, schemas: Document) -> Document:
    if kind in _RAW:
        return {"type": "string", "format": "binary"}
    if kind is object:
        return {}
    from pydantic import PydanticUserError, TypeAdapter  # FastAPI brings it

    try:
        adapter: TypeAdapter[Any] = TypeAdapter(cast("type[Any]", kind))
        found = adapter.json_schema(ref_template="#/components/schemas/{model}")
    except PydanticUserError:  # of something in it there is no schema
        return {}
    for name, schema in found.pop("$defs", {}).items():
        schemas.setdefault(name, schema)
    name = found.get("title")
    if found.get("type") != "object" or not name or "properties" not in found:
        return found
    schemas.setdefault(name, found)
    return {"$ref": f"#/components/schemas/{name}"}


def _add(responses: Document, status: int, text: str, schema: str) -> None:
    response: Document = responses.setdefault(str(status), {"description": text})
    if response.get("description") != text:
        response["description"] = f"{response.get('description', '')}\n\nOr: {text}".strip()
    add_content(response, "application/json", {"$ref": f"#/components/schemas/{schema}"})


def _add_problems(responses: Document, receipts: Receipts[Any]) -> None:
    rules = receipts.rules
    kinds, details = rules.rendering.problems.kinds, rules.wire.details
    by_status: dict[int, list[Code]] = {}
    for code in _possible(receipts):
        by_status.setdefault(rules.wire.status(code), []).append(code)
    for status, codes in sorted(by_status.items()):
        text = " ".join(f"`{code}`: {details.get(code) or kinds[code].meaning}" for code in codes)
        response: Document = responses.setdefault(str(status), {"description": text})
        if response.get("description") != text:
            response["description"] = f"{response.get('description', '')}\n\nOr: {text}".strip()
        if rules.wire.render_problem is None:
            schema: Document = {"$ref": f"#/components/schemas/{PROBLEM}"}
            add_content(response, "application/problem+json", schema)
        else:
            add_content(response, "application/json", {"type": "object"})
        if any(kinds[code].retry for code in codes):
            response.setdefault("headers", {})["Retry-After"] = {
                "description": "After how many seconds it is to be sent again.",
                "schema": {"type": "integer", "minimum": 1},
            }


def _possible(receipts: Receipts[Any]) -> list[Code]:
    """What a sender may be told instead of the handler's own response."""
    policy = receipts.rules.policy
    found: list[Code] = ["key-reused", "payload-invalid", "store-unavailable", "store-reset", "draining"]
    if receipts.webhook is not None:
        found.append("signature-invalid")
    if receipts.check is not None:
        found.append("subject-unknown")
    if receipts.stores_payload:
        found.append("body-too-large")
    if not receipts.inbox:
        found.extend(("handler-failed", "not-done"))
    if receipts.callback.in_progress == "refuse":
        found.append("in-flight")
    if policy.abandoned == "hold":
        found.append("outcome-unknown")
    if policy.failed != "retry":
        found.append("previously-failed")
    return found


_ACKNOWLEDGEMENT: Document = {
    "title": ACKNOWLEDGEMENT,
    "description": "The event need not be delivered again.",
    "type": "object",
    "required": ["message", "idempotent_replayed"],
    "properties": {
        "message": {"type": "string"},
        "idempotent_replayed": {"type": "boolean"},
        "original_received_at": {
            "type": "string",
            "format": "date-time",
            "description": "When it was delivered first, where it was delivered before.",
        },
    },
}
