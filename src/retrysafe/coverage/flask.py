"""The routes of Flask's applications, blueprints and method views included.

A view that is decorated without a guard is protected by that of its application.
"""

from inspect import ismethod
from typing import Any

from flask import Flask

from retrysafe.coverage.stack import Endpoint, Found, Part, Place, chain, layer_of
from retrysafe.flask import guards_of


def read(app: object, place: Place) -> Found:
    """An application; or its own `wsgi_app`, which its middlewares stand around and have inside of them."""
    if not isinstance(app, Flask):
        owner = _owner(app)
        return _rules(owner, place) if owner is not None else iter(())
    place = place._replace(held=(*place.held, *guards_of(app)))
    if any(_owner(inner) is app for inner in chain(app.wsgi_app)):
        return iter((Part(app.wsgi_app, place),))
    # Something that does not show what it stands around.
    return _rules(app, place.within(layer_of(app.wsgi_app, place.prefix)))


def _owner(method: object) -> Flask | None:
    """The application whose method it is."""
    owner: object = method.__self__ if ismethod(method) else None
    return owner if isinstance(owner, Flask) else None


def _rules(app: Flask, place: Place) -> Found:
    guards = guards_of(app)
    own = guards[0] if len(guards) == 1 else None
    for rule in app.url_map.iter_rules():
        if rule.build_only or rule.websocket or rule.redirect_to is not None:
            continue
        view: Any = app.view_functions.get(rule.endpoint)
        host = rule.host or rule.subdomain or place.host
        for method in sorted(rule.methods or ()):
            yield Endpoint(
                place.prefix + rule.rule,
                frozenset({method}),
                _functions(view, method),
                place._replace(host=host),
                "flask",
                guard=own,
            )


def _functions(view: object, method: str) -> tuple[object, ...]:
    """Of a class, the method that is called, too: either may be decorated."""
    made_by: object = getattr(view, "view_class", None)
    if made_by is None:
        return (view,)
    named = (getattr(made_by, name, None) for name in (method.lower(), "dispatch_request"))
    return (next(function for function in named if function is not None), view)
