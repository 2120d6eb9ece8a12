"""What a request passes on its way to an endpoint, read from the outside in.

An application is unwrapped by the attribute that middlewares have by convention, until something is reached
whose routes can be read, by `starlette.py`, `flask.py` or `django.py`, or that shows none.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, NamedTuple, cast

from retrysafe import asgi, wsgi
from retrysafe._http.routes import Routes
from retrysafe.asgi.authentication import may_set_user, own_attribute, sets_user
from retrysafe.coverage.model import By
from retrysafe.coverage.paths import ANGLES, BRACES, Template
from retrysafe.errors import ConfigurationError
from retrysafe.guard import Guard

_INNER = ("app", "application", "wsgi_application")
"""Where middlewares have what they stand around: most of them; WhiteNoise; asgiref."""


class Layer(NamedTuple):
    """A middleware."""

    cls: object
    """Its class, or the function that makes it."""
    name: str
    prefix: str
    """Where it is mounted: it sees paths without this."""
    by: By | None = None
    guard: Guard | None = None
    covers: Routes | None = None
    """Of ours: which requests it guards."""
    user: Literal["sets", "may set", "leaves"] | None = None
    """What it does about the user; `None`: its class says so."""

    @property
    def sets_user(self) -> bool:
        return sets_user(self.cls) if self.user is None else self.user == "sets"

    @property
    def may_set_user(self) -> bool:
        return may_set_user(self.cls) if self.user is None else self.user != "leaves"


class Place(NamedTuple):
    """Where a part of an application stands."""

    prefix: str = ""
    host: str = ""
    layers: tuple[Layer, ...] = ()
    """What stands around it, outermost first."""
    held: tuple[Guard, ...] = ()
    """The guards that decorated endpoints find: those that applications around them are protected with."""
    around: tuple[object, ...] = ()
    """Which applications it is in: one that is mounted in itself is read once."""

    def within(self, *layers: Layer) -> "Place":
        return self._replace(layers=(*self.layers, *layers))

    def entered(self, app: object) -> "Place":
        return self._replace(around=(*self.around, app))


class Part(NamedTuple):
    """An application inside of another, still to be read."""

    app: object
    place: Place


class Endpoint(NamedTuple):
    """What serves a path."""

    path: str
    methods: frozenset[str]
    functions: tuple[object, ...]
    """The function that is called, and what else may carry its mark."""
    place: Place
    framework: Literal["starlette", "flask", "django"] = "starlette"
    known: bool = True
    """Whether it is a route, and not an application whose routes cannot be read."""
    guard: Guard | None = None
    """By which it claims if its decorator names none."""
    template: str = ""
    """Its path with the kinds of its parameters, where the path is shown without them."""
    called: str = ""
    """Its name, where the function's own is another class's."""
    is_known: bool = False
    """It is its framework's own and needs no protection, such as a login: listed only where it has one."""
    remark: str = ""
    """What is to be known of it if nothing protects it."""
    asks_user: bool = False
    """Its framework finds the user itself, after all middlewares."""

    @property
    def name(self) -> str:
        return self.called or name_of(self.functions[0])

    @property
    def protect(self) -> str:
        """What has to be called so that a decorated function finds its guard."""
        return _PROTECT[self.framework]

    def below(self, prefix: str) -> Template:
        """Its path as a middleware that is mounted there sees it."""
        parameters = ANGLES if self.framework == "flask" else BRACES
        return Template((self.template or self.path)[len(prefix) :], parameters, is_prefix=not self.known)


_PROTECT = {
    "starlette": "protect(app, guard)",
    "flask": "Retrysafe(guard).init_app(app)",
    "django": "retrysafe.django.Middleware",
}


Found = Iterator[Part | Endpoint]


def is_a(value: object, *kinds: str) -> bool:
    """Whether it is an instance of a class of this name: so no framework has to be imported to ask."""
    return any(f"{base.__module__}.{base.__qualname__}" in kinds for base in type(value).__mro__)


def name_of(value: object) -> str:
    """A function or a class by its own name, anything else by that of its class."""
    if value is None:
        return ""
    value = innermost(value)
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{getattr(named, '__qualname__', '')}".removeprefix("builtins.")


def inner_of(app: object) -> object | None:
    """What a middleware stands around, as far as it shows it."""
    for name in (*_INNER, "__wrapped__"):
        inner: object = own_attribute(app, name)
        if callable(inner):
            return inner
    return None


def chain(app: object) -> Iterator[object]:
    """An application, what it stands around, and so on to the innermost."""
    passed: list[object] = []
    while app is not None and not any(app is one for one in passed):
        passed.append(app)
        yield app
        app = inner_of(app)


def innermost(function: object) -> object:
    """What a partial stands for."""
    while isinstance(function, partial):
        function = cast("partial[object]", function).func
    return function


def layer_of(app: object, prefix: str) -> Layer:
    """A middleware that was built."""
    match app:
        case asgi.Middleware():
            return Layer(type(app), "asgi.Middleware", prefix, "asgi.Middleware", app.guard, app.covers)
        case wsgi.Middleware():
            return Layer(type(app), "wsgi.Middleware", prefix, "wsgi.Middleware", app.guard, app.covers)
        case _:
            return Layer(type(app), name_of(app), prefix)


def layer_to_be(
    make: Callable[..., object], args: tuple[object, ...], options: dict[str, object], prefix: str
) -> Layer:
    """A middleware that an application builds when it starts.  Only ours is built here: that does nothing."""
    made = innermost(make)
    if _is_ours(made):
        try:
            return layer_of(make(_nothing, *args, **options), prefix)
        except TypeError as error:
            raise ConfigurationError(
                f"a middleware of the application cannot be built: {error}. Add it with a guard, as in "
                "app.add_middleware(Middleware, guard=guard)"
            ) from error
    name = name_of(options.get("dispatch")) or name_of(made)  # the function of `@app.middleware("http")`
    return Layer(made, name, prefix)


def _is_ours(cls: object) -> bool:
    return isinstance(cls, type) and issubclass(cls, asgi.Middleware | wsgi.Middleware)


async def _nothing(*_: object) -> None:
    """Stands for the application, and is never called."""
