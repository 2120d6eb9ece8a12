"""What ASGI and WSGI share of a request that is held from outside and claimed by its endpoint.

A middleware cannot know who is logged in inside the framework, whether the body is valid, or which route it
is.  So an adapter's `Holder` stands around the application and only holds, and the endpoint claims when
authentication, permissions and validation are behind it.
"""

from collections.abc import Iterable
from typing import Final

from retrysafe._core import attempt as attempts
from retrysafe._core.attempt import Unclaimed
from retrysafe._core.model import Header, Request, Response
from retrysafe.errors import ConfigurationError
from retrysafe.policy import Rules

CLIENT_GONE: Final = Response(400, ((b"content-type", b"text/plain"), (b"content-length", b"0")))
"""A framework has to be given some response, even where no client is left."""


def name_of(guard: object) -> str:
    """Under which name an application finds, beside a request, what holds it for this guard."""
    return f"retrysafe.held.{id(guard)}"


def check_claim(
    request: Request, rules: Rules, store: object, unclaimed: Unclaimed, *, claiming: bool, started: bool
) -> None:
    """Refuse a claim that comes too late, a second time, or after what cannot be part of its call."""
    where = f"{request.method} {request.path}"
    if claiming:
        raise ConfigurationError(
            f"{where}: two decorated endpoints claimed the key of one request. Decorate the function that "
            "the framework calls, and not those that it calls itself"
        )
    if started:
        raise ConfigurationError(
            f"{where}: a response had begun when its endpoint claimed the key. Claim before anything is sent"
        )
    if reason := attempts.check_unclaimed(unclaimed, store, in_database=rules.policy.effects == "database"):
        raise ConfigurationError(f"{where}: {reason}")


def without_doubles(sent: Iterable[Header], ours: Iterable[Header]) -> list[Header]:
    """A replay's headers, without those that what stands between us and the endpoint has added once more.

    It added them to the first response too, and so they are stored; the fresh ones count.
    """
    rest = list(sent)
    own: list[Header] = []
    for header in ours:
        if header in rest:
            rest.remove(header)
            own.append(header)
    for name, _ in rest:
        for position in reversed(range(len(own))):
            if own[position][0] == name:
                del own[position]
                break
    return [*own, *rest]
