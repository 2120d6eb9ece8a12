"""drf-spectacular: the document of an API says which operations take keys, and what may come back.

    SPECTACULAR_SETTINGS = {
        "POSTPROCESSING_HOOKS": [
            "drf_spectacular.hooks.postprocess_schema_enums",
            "retrysafe.django.spectacular.describe_keys",
        ],
    }

What is described already, such as a header that `@extend_schema` names, is left as it is.
"""

import posixpath
import re
from collections.abc import Iterator
from typing import Any

from drf_spectacular.settings import spectacular_settings
from rest_framework.versioning import URLPathVersioning

from retrysafe._http.openapi import Document, add_schemas, describe_operation
from retrysafe.django.middleware import covered_routes
from retrysafe.django.routes import mark_of, receives
from retrysafe.django.settings import guard
from retrysafe.policy import Rules

__all__ = ["describe_keys"]


def describe_keys(result: Document, generator: Any, **_: object) -> Document:  # noqa: ANN401 - as it is called
    """A hook for `POSTPROCESSING_HOOKS`: the key, the problems, and the headers of protected operations."""
    operations = {
        (_without_names(path), method): operation
        for path, item in result.get("paths", {}).items()
        for method, operation in item.items()
    }
    for path, method, rules in _protected(generator):
        operation = operations.get((_without_names(path), method.lower()))
        if operation is not None:  # it may be hidden from those who read the document
            describe_operation(operation, rules)
            add_schemas(result, rules)
    return result


def _protected(generator: Any) -> Iterator[tuple[str, str, Rules]]:  # noqa: ANN401 - untyped
    """Path, method and rules of each operation that claims keys; paths as in the document."""
    own = guard()
    covered = covered_routes(own)
    key = {own.rules.names.key: b""}
    views = generator._get_paths_and_endpoints()
    prefix = _prefix(views)
    for (raw, _, _, callback), (path, _, method, view) in zip(generator.endpoints, views, strict=True):
        found = mark_of(callback, method, own)
        if found is not None:
            rules = found.rules
        elif (
            covered is None
            or receives(callback, method)
            or (route := covered.match(method, raw, key)) is None
        ):
            continue
        else:
            rules = route.rules
        if method in rules.wire.methods:
            yield _in_document(path, view, generator.api_version, prefix), method, rules


def _prefix(views: Any) -> str:  # noqa: ANN401 - untyped
    """What `SCHEMA_PATH_PREFIX_TRIM` takes off: see `SchemaGenerator.parse()`."""
    prefix: str | None = spectacular_settings.SCHEMA_PATH_PREFIX
    if prefix is None:
        prefix = "/"
        if len({view.__class__ for *_, view in views}) > 1:
            prefix = re.escape(posixpath.commonpath([path for path, *_ in views]))
    return prefix if prefix.startswith("^") else "^" + prefix


def _in_document(path: str, view: Any, version: str | None, prefix: str) -> str:  # noqa: ANN401 - untyped
    versions = view.versioning_class
    if versions is not None and issubclass(versions, URLPathVersioning):
        path = path.replace(f"{{{versions.version_param}}}", str(version or versions.default_version))
    if spectacular_settings.SCHEMA_PATH_PREFIX_TRIM:
        path = re.sub(prefix, "", path, flags=re.IGNORECASE)
    if spectacular_settings.SCHEMA_PATH_PREFIX_INSERT:
        path = spectacular_settings.SCHEMA_PATH_PREFIX_INSERT + path
    return "/" + path.removeprefix("/")


_NAME = re.compile(r"\{[^}]*\}")


def _without_names(path: str) -> str:
    """The settings may write the names of parameters in another way."""
    return _NAME.sub("{}", path)
