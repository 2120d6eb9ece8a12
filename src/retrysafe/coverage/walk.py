"""Every endpoint of an application, whatever it is made of."""

from collections.abc import Iterator
from inspect import ismethod, signature

from retrysafe.coverage.model import UNLISTED
from retrysafe.coverage.stack import Endpoint, Found, Part, Place, inner_of, is_a, layer_of
from retrysafe.errors import ConfigurationError

_STARLETTE = ("starlette.applications.Starlette", "starlette.routing.Router")
_FLASK = "flask.app.Flask"
_DJANGO = "django.core.handlers.base.BaseHandler"
_DISPATCHER = "werkzeug.middleware.dispatcher.DispatcherMiddleware"
_FILES = "starlette.staticfiles.StaticFiles"
"""It refuses all methods but GET and HEAD."""


def is_application(app: object) -> bool:
    """Whether it can be called as ASGI and WSGI call applications."""
    if is_a(app, *_STARLETTE, _FLASK):
        return True
    if not callable(app) or isinstance(app, type):
        return False
    return takes(app, 3) or takes(app, 2)


def takes(function: object, arguments: int) -> bool:
    """Whether it can be called with so many arguments; `True` if it does not say."""
    if not callable(function):
        return False
    try:
        signature(function).bind(*[None] * arguments)
    except TypeError:
        return False
    except ValueError:  # written in C
        return True
    return True


def walk(app: object, place: Place) -> Iterator[Endpoint]:
    """Its endpoints and those of all that is mounted in it, in the order of its routes."""
    if any(app is one for one in place.around):
        return
    for found in _read(app, place.entered(app)):
        if isinstance(found, Part):
            yield from walk(found.app, found.place)
        else:
            yield found


def _read(app: object, place: Place) -> Found:
    if is_a(app, *_STARLETTE):
        from retrysafe.coverage import starlette

        return starlette.read(app, place)  # type: ignore[arg-type]  # asked by name, so that nothing is imported
    if is_a(app, _FLASK) or (ismethod(app) and is_a(app.__self__, _FLASK)):
        from retrysafe.coverage import flask

        return flask.read(app, place)
    if is_a(app, _DJANGO):
        from retrysafe.coverage import django

        return django.read(place)
    if is_a(app, _FILES):
        return iter(())
    return _others(app, place)


def _others(app: object, place: Place) -> Found:
    if is_a(app, _DISPATCHER):
        mounts: dict[str, object] = getattr(app, "mounts", {})
        for prefix, mounted in mounts.items():
            yield Part(mounted, place._replace(prefix=place.prefix + prefix))
    inner = inner_of(app)
    if inner is None:
        yield from _unlisted(app, place)
    else:
        yield Part(inner, place.within(layer_of(app, place.prefix)))


def _unlisted(app: object, place: Place) -> Iterator[Endpoint]:
    """An application whose routes cannot be read: what middlewares say of paths in it, and all others."""
    below = place.prefix + "/"
    paths = [
        layer.prefix + path
        for layer in place.layers
        if layer.covers is not None
        for path in layer.covers.patterns
        if (layer.prefix + path).startswith(below)
    ]
    for path in dict.fromkeys([*paths, below + "*"]):
        yield Endpoint(path, frozenset(UNLISTED), (app,), place, known=False)


def refuse(app: object) -> ConfigurationError:
    """The error for what is not an application."""
    return ConfigurationError(
        f"{app!r} is not an application: expected one of FastAPI's, Starlette's, Flask's or Django's, or a "
        "function or object that can be called as ASGI or WSGI call theirs"
    )
