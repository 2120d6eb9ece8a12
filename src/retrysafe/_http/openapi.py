"""What an OpenAPI document says about a protected operation: written from its rules, as the specification is.

Documents are JSON, so these are plain dictionaries.  What an application describes itself is left as it is.
"""

from typing import Any

from retrysafe import scopes
from retrysafe._core.problems import CATALOGUE, Code
from retrysafe._http.specification import explain, possible_problems, retention_text
from retrysafe.policy import Rules

Document = dict[str, Any]

PROBLEM = "IdempotencyProblem"
"""The name of the schema of a problem."""


def describe_operation(operation: Document, rules: Rules) -> None:
    """Add the key, the problems and the headers of replays to an operation."""
    _add_parameter(operation, rules)
    responses: Document = operation.setdefault("responses", {})
    for described, response in responses.items():
        if described[:1] in ("2", "3", "4"):
            response.setdefault("headers", {}).update(_replay_headers(rules))
    by_status: dict[int, list[Code]] = {}
    for code in possible_problems(rules):
        by_status.setdefault(rules.wire.status(code), []).append(code)
    for status, codes in sorted(by_status.items()):
        _add_problems(responses, str(status), codes, rules)


def add_schemas(document: Document, rules: Rules) -> None:
    """Add what operations refer to."""
    if rules.wire.render_problem is None:
        schemas: Document = document.setdefault("components", {}).setdefault("schemas", {})
        schemas.setdefault(PROBLEM, _problem_schema())


def _add_parameter(operation: Document, rules: Rules) -> None:
    wire = rules.wire
    parameters: list[Document] = operation.setdefault("parameters", [])
    for parameter in parameters:
        if (
            parameter.get("in") == "header"
            and str(parameter.get("name", "")).lower() == wire.key_header.lower()
        ):
            return
    shortest = wire.shortest_public_key if scopes.shared(rules.request.scope) == "always" else 1
    parameters.append(
        {
            "name": wire.key_header,
            "in": "header",
            "required": rules.request.required is True,
            "description": "Makes this request safe to repeat: one key per intended action, the same key "
            f"with every retry of it. {retention_text(rules)}",
            "schema": {"type": "string", "minLength": shortest, "maxLength": wire.longest_key},
            "example": "8e03978e-40d5-43dd-bc93-6894a57f9324",
        }
    )


def _replay_headers(rules: Rules) -> Document:
    wire = rules.wire
    return {
        wire.replayed_header: {
            "description": "`true` on the stored response to an earlier request with the same key.",
            "schema": {"type": "string", "enum": ["true"]},
        },
        wire.original_id_header: {
            "description": "The id of that earlier request.",
            "schema": {"type": "string"},
        },
    }


def _add_problems(responses: Document, status: str, codes: list[Code], rules: Rules) -> None:
    kinds = rules.rendering.problems.kinds
    text = " ".join(
        f"`{code}`: {explain(code, rules)['meaning']} {explain(code, rules)['advice']}" for code in codes
    )
    response: Document = responses.setdefault(status, {"description": text})
    if response.get("description") != text:
        response["description"] = f"{response.get('description', '')}\n\nOr, about the key: {text}".strip()
    media_type = "application/problem+json" if rules.wire.render_problem is None else "application/json"
    schema: Document = (
        {"$ref": f"#/components/schemas/{PROBLEM}"}
        if rules.wire.render_problem is None
        else {"type": "object"}
    )
    response.setdefault("content", {}).setdefault(media_type, {"schema": schema})
    if any(kinds[code].retry is not None for code in codes):
        response.setdefault("headers", {}).update(
            _hint_headers(rules, retry=any(kinds[code].retry for code in codes))
        )


def _hint_headers(rules: Rules, *, retry: bool) -> Document:
    found: Document = {
        name: {
            "description": "Whether to send the same request again, with the same key.",
            "schema": {"type": "string", "enum": ["true", "false"]},
        }
        for name in rules.wire.should_retry_headers
    }
    if retry:
        found["Retry-After"] = {
            "description": "After how many seconds, where it may be sent again.",
            "schema": {"type": "integer", "minimum": 1},
        }
    return found


def _problem_schema() -> Document:
    return {
        "title": PROBLEM,
        "description": "A refusal of the idempotency layer (RFC 9457).",
        "type": "object",
        "required": ["type", "title", "status", "detail", "code"],
        "properties": {
            "type": {"type": "string", "format": "uri"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "code": {"type": "string", "enum": list(CATALOGUE)},
            "previous": {"type": "object", "description": "How the first request failed."},
        },
    }
