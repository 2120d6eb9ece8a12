"""What a view or a project says of its calls: the options of any route, in Django's terms.

Functions are called with Django's request, and may be given by their dotted paths.  There is no `background`:
a response is stored when it is there, and Django has nothing that would come after it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from django.http import HttpRequest

from retrysafe import policy
from retrysafe._core.fingerprint import Fingerprint
from retrysafe.django.scopes import ScopeOption, imported, of_django
from retrysafe.errors import ConfigurationError
from retrysafe.policy import OperationOptions, Required, check_options

Reauthorise = Callable[[HttpRequest], "bool | Awaitable[bool]"]


class Options(OperationOptions, total=False):
    """What `@idempotent` takes; see `retrysafe.policy` for the reasons."""

    scope: ScopeOption
    required: Required
    fingerprint: Fingerprint
    max_request: int
    reauthorise: Reauthorise | str | None
    drop_headers: Sequence[str]


def of_engine(said: Options | Mapping[str, Any]) -> policy.Options:
    """The same as the engine knows them; what cannot be right is refused."""
    found: dict[str, Any] = {**said}
    if "background" in found:
        raise ConfigurationError(
            "background= has no meaning in Django: a view's response is stored when it is there, and what is "
            "to happen after it belongs into transaction.on_commit or current().on_commit. Leave it out"
        )
    if isinstance(path := found.get("reauthorise"), str):
        found["reauthorise"] = imported("reauthorise", path)
    if "scope" in found:
        found["scope"] = of_django(found["scope"])
    options = cast("policy.Options", found)
    check_options(options)
    return options
