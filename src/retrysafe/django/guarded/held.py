"""What the middleware and a view that claims leave for each other, on the request.

The middleware stands around the view: it has the body copied, keeps a request alive whose client is gone, and
settles what the view has raised, once Django has made a response of it.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, NamedTuple
from weakref import WeakSet

from django.conf import settings
from django.http import HttpRequest
from django.utils.module_loading import import_string

if TYPE_CHECKING:
    from retrysafe.django.guarded.exchange import SyncExchange
    from retrysafe.django.guarded.exchange_async import AsyncExchange
    from retrysafe.guard import Guard

_HELD = "_retrysafe_held"


class Pending(NamedTuple):
    """A claim whose view has raised."""

    exchange: "SyncExchange | AsyncExchange"
    error: Exception


class Held:
    """A request that went through the middleware."""

    has_claimed = False
    """Its view has begun, so it is brought to its end."""
    pending: Pending | None = None
    error: Exception | None = None
    """What the view has raised."""


def hold(request: HttpRequest) -> Held:
    vars(request)[_HELD] = held = Held()
    return held


def is_held(request: HttpRequest) -> bool:
    return _HELD in vars(request)


def held_of(request: HttpRequest) -> Held | None:
    found: Held | None = vars(request).get(_HELD)
    return found


def note_claim(request: HttpRequest) -> None:
    """The view of this request is about to begin."""
    held = held_of(request)
    if held is not None:
        held.has_claimed = True


def leave_pending(request: HttpRequest, exchange: "SyncExchange | AsyncExchange", error: Exception) -> None:
    """The view has raised, and is settled with the response that is made of it."""
    held: Held = vars(request)[_HELD]
    held.pending = Pending(exchange, error)


class Claimants:
    """Views that claim by something else than the header of the project's guard."""

    guards: ClassVar[WeakSet["Guard"]] = WeakSet()
    """Those that were given to decorators."""
    receive = False
    """There are views that take deliveries, whose ids are in what is delivered."""


def is_installed() -> bool:
    """Whether the project has the middleware."""
    return _is_among(tuple(settings.MIDDLEWARE))


@lru_cache(maxsize=8)
def _is_among(paths: tuple[str, ...]) -> bool:
    from retrysafe.django.middleware import Middleware  # which knows the views

    for path in paths:
        found: object = import_string(path)
        if isinstance(found, type) and issubclass(found, Middleware):
            return True
    return False
