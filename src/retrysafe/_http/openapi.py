"""What an OpenAPI document says about a protected operation: written from its rules, as the specification is.

Documents are JSON, so these are plain dictionaries.  What an application describes itself is left as it is.
"""

from typing import Any

from retrysafe import scopes
from retrysafe._core.problems import COMMON, Code
from retrysafe._http.specification import explain, header_texts, possible_problems, retention_text
from retrysafe.policy import Rules

Document = dict[str, Any]

PROBLEM = "IdempotencyProblem"
"""The name of the schema of a problem."""


def describe_operation(operation: Document, rules: Rules) -> None:
    """Add to an operation the key, the problems, and the headers of its responses and their replays."""
    _add_parameter(operation, rules)
    responses: Document = operation.setdefault("responses", {})
    if rules.wire.tombstone == "empty-200":
        responses.setdefault("200", {"description": "A replay whose body was not stored: it has none."})
    own = {*responses, str(rules.wire.status("handler-failed"))}
    by_status: dict[int, list[Code]] = {}
    for code in possible_problems(rules):
        by_status.setdefault(rules.wire.status(code), []).append(code)
    for status, codes in sorted(by_status.items()):
        _add_problems(responses, str(status), codes, rules)
    for described, response in responses.items():
        headers: Document = response.setdefault("headers", {})
        headers.update(_common_headers(rules))
        if described in own:
            headers.update(_stored_headers(rules))
            if described.startswith("5"):
                headers.update(_hint_headers(rules, retry=True))


def add_content(response: Document, media_type: str, schema: Document) -> None:
    """Describe one more body of a response.

    Generated clients look at one of several media types and get whichever is sent: what is JSON has the
    schemas of all that are.
    """
    content: Document = response.setdefault("content", {})
    found = content.setdefault(media_type, {"schema": schema})
    alternatives: list[Document] = []
    described = [each for name, each in content.items() if name.endswith("json") and "schema" in each]
    for each in (*described, *([{"schema": schema}] if found in described else ())):
        listed: Document = each["schema"]
        alternatives += [one for one in listed.get("anyOf", [listed]) if one not in alternatives]
    if len(alternatives) > 1:
        for each in described:
            each["schema"] = {"anyOf": alternatives}


def add_schemas(document: Document, rules: Rules) -> None:
    """Add what operations refer to."""
    if rules.wire.render_problem is None:
        schemas: Document = document.setdefault("components", {}).setdefault("schemas", {})
        schemas.setdefault(PROBLEM, problem_schema())


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


def _common_headers(rules: Rules) -> Document:
    """Of every response to a request with a key."""
    names = [rules.wire.request_id_header, rules.wire.keyed_id_header]
    return {name: _text(header_texts(rules)[name]) for name in names if name is not None}


def _stored_headers(rules: Rules) -> Document:
    """Of a handler's own response, when it is sent for the first time or replayed."""
    wire, texts = rules.wire, header_texts(rules)
    values = {wire.replayed_header: "true", wire.body_header: "omitted", wire.stored_header: "false"}
    found = {name: _text(texts[name], value) for name, value in values.items() if name in texts}
    found[wire.original_id_header] = _text(texts[wire.original_id_header])
    if wire.echo_key:
        found[wire.key_header] = _text(texts[wire.key_header])
    return found


def _text(description: str, value: str | None = None) -> Document:
    schema: Document = {"type": "string"} if value is None else {"type": "string", "enum": [value]}
    return {"description": description[0].upper() + description[1:] + ".", "schema": schema}


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
    add_content(response, media_type, schema)
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
        found["Retry-After-Ms"] = {
            "description": "The same in milliseconds, and finer.",
            "schema": {"type": "integer", "minimum": 1},
        }
    return found


def problem_schema() -> Document:
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
            "code": {"type": "string", "enum": list(COMMON)},
            "previous": {"type": "object", "description": "How the first request failed."},
        },
    }
