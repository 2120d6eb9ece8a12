"""The service as a Django project: its views claim, after the middleware that authenticates.

From the outside in: CORS, authentication, retrysafe's middleware, a decorator that asks for the permission,
the claim, a compressor on the route that has one, and the views.  `/validated` is Django REST framework's,
with its authentication and permission classes and a serializer.

Over ASGI the views are `async def`, but for the one of Django REST framework, which has no such views; where
effects are in the database they are blocking ones, because a transaction of Django's is one thread's.
"""

from typing import cast
from wsgiref.types import WSGIApplication

from retrysafe import Guard
from retrysafe.testing.reference.asgi_layers import App, Receive, Scope, Send
from retrysafe.testing.reference.service import Service

# The views can be imported when there are settings.


def build(service: Service, _guard: Guard) -> WSGIApplication:
    from django.core.wsgi import get_wsgi_application

    from retrysafe.testing.reference.django import urls, views

    urls.fill(views.Views(service))
    return get_wsgi_application()


def build_asynchronous(service: Service, guard: Guard) -> App:
    from django.core.asgi import get_asgi_application

    from retrysafe.testing.reference.django import urls, views

    urls.fill(views.Views(service, asynchronous=True, transactional=guard.rules.policy.effects == "database"))
    return Living(cast("App", get_asgi_application()), service, guard)


class Living:
    """Django serves requests and knows nothing of a server's start and stop: so they are handled here."""

    def __init__(self, app: App, service: Service, guard: Guard) -> None:
        self._app = app
        self._service = service
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            from retrysafe.asgi.lifespan import live
            from retrysafe.testing.reference.asgi import lifespan

            async def app(_: Scope, receive: Receive, send: Send) -> None:
                await lifespan(self._service, receive, send)

            await live(app, self._guard, scope, receive, send)
        else:
            await self._app(scope, receive, send)
