"""Flask: what is said of each route is what requests to it meet."""

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, Unpack

from flask import Blueprint, Flask
from flask.views import MethodView, View
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.middleware.proxy_fix import ProxyFix

from retrysafe import Guard, scopes, wsgi
from retrysafe.coverage import examine, exempt
from retrysafe.flask import Retrysafe, idempotent
from retrysafe.policy import Options
from tests.coverage.sending import a_guard, is_true, send_wsgi, states

runs = count()


def run(**_: object) -> str:
    return f"run {next(runs)}"


def marked(guard: Guard | None, **options: Unpack[Options]) -> Callable[..., str]:
    """A decorated view."""

    @idempotent(guard, **options)
    def view(*_: object, **__: object) -> str:
        return run()

    return view


def an_app(name: str = "shop") -> Flask:
    class Orders(MethodView):
        def get(self) -> str:
            raise AssertionError("it is not mutating")

        def post(self) -> str:
            return run()

        @exempt("may be repeated")
        def delete(self) -> str:
            return run()

    app = Flask(name)
    app.add_url_rule("/orders", view_func=Orders.as_view("orders"))
    app.add_url_rule("/items/<int:id>", "items", run, methods=["PUT", "GET"])
    api = Blueprint("api", __name__, url_prefix="/api")
    api.add_url_rule("/<path:rest>", "all", run, methods=["POST"])
    app.register_blueprint(api)
    return app


def test_middlewares() -> None:
    """Around `wsgi_app`, around the application, and none: rules, blueprints and method views."""
    app = an_app()
    assert set(states(examine(app)).values()) == {"unprotected", "exempt"}
    app.wsgi_app = ProxyFix(  # type: ignore[method-assign]  # as Flask's documentation says
        wsgi.Middleware(
            app.wsgi_app, a_guard(), paths=["/orders", "/api/*"], routes={"/api/*": {"required": True}}
        )
    )
    found = examine(app)
    assert states(found) == {
        "POST /orders": "optional",
        "DELETE /orders": "optional",
        "PUT /items/<int:id>": "unprotected",
        "POST /api/<path:rest>": "required",
    }
    assert [f"{route}: {seen}" for route, seen in send_wsgi(app, found) if not is_true(route, seen)] == []
    wrapped = wsgi.Middleware(an_app(), a_guard(required=True), paths=["/items/*"])
    found = examine(wrapped)
    assert states(found) == {
        "POST /orders": "unprotected",
        "DELETE /orders": "exempt",
        "PUT /items/<int:id>": "required",
        "POST /api/<path:rest>": "unprotected",
    }
    assert [f"{route}: {seen}" for route, seen in send_wsgi(wrapped, found) if not is_true(route, seen)] == []


def test_a_dispatcher() -> None:
    """Applications below prefixes, where a middleware sees paths without them."""
    guard = a_guard()
    app = DispatcherMiddleware(
        an_app("outer"), {"/sub": wsgi.Middleware(an_app("inner"), guard, paths=["/orders"])}
    )
    found = examine(app)
    assert states(found)["POST /sub/orders"] == "optional"
    assert states(found)["POST /orders"] == "unprotected"
    assert [f"{route}: {seen}" for route, seen in send_wsgi(app, found) if not is_true(route, seen)] == []


def test_what_does_not_show_its_inside() -> None:
    """The routes of the application are listed all the same."""
    app = an_app()
    inner = app.wsgi_app
    app.wsgi_app = lambda *args: inner(*args)  # type: ignore[method-assign]  # the same
    assert len(examine(app).routes) == 4


def test_marked_views() -> None:
    """Functions, methods of a class, and classes whose decorators mark the view."""
    guard = a_guard(profile="erp")

    class Methods(MethodView):
        def post(self) -> str:
            return run()

        put = post

    class Whole(View):
        methods = ["POST"]  # noqa: RUF012 - as Flask has it
        decorators = [lambda view: marked(guard)]  # noqa: RUF012 - the same

    Methods.post = marked(guard, required=True)  # type: ignore[method-assign]  # a decorated one
    app = Flask("marked")
    Retrysafe(guard).init_app(app)
    app.add_url_rule("/function", "function", marked(guard, effects="repeatable"), methods=["POST", "DELETE"])
    app.add_url_rule("/own", "own", marked(None), methods=["POST"])
    app.add_url_rule("/methods", view_func=Methods.as_view("methods"))
    app.add_url_rule("/whole", view_func=Whole.as_view("whole"))
    found = examine(app)
    assert states(found) == {
        "POST /function": "optional",
        "DELETE /function": "unprotected",
        "POST /own": "optional",
        "POST /methods": "required",
        "PUT /methods": "unprotected",
        "POST /whole": "optional",
    }
    protections = [route.protection for route in found.routes if route.protection]
    assert {one.by for one in protections} == {"@idempotent"}
    assert {one.guard for one in protections} == {guard}
    assert found.findings == ()
    assert [f"{route}: {seen}" for route, seen in send_wsgi(app, found) if not is_true(route, seen)] == []


def test_marked_and_not_initialised() -> None:
    """A problem, with what is to be called in Flask."""
    guard = a_guard()
    app = Flask("shop")
    app.add_url_rule("/orders", "orders", marked(guard), methods=["POST"])
    (finding,) = examine(app).findings
    assert finding.level == "problem"
    assert "Retrysafe(guard).init_app(app)" in finding.advice
    Retrysafe(a_guard()).init_app(app)
    (finding,) = examine(app).findings
    assert "another guard" in finding.found


def test_several_guards() -> None:
    """Each view says which one: a view that does not fails at its first request."""
    guards = [a_guard(), a_guard()]
    app = Flask("shop")
    for guard in guards:
        Retrysafe(guard).init_app(app)
    app.add_url_rule("/named", "named", marked(guards[1]), methods=["POST"])
    assert examine(app).findings == ()
    app.add_url_rule("/unnamed", "unnamed", marked(None), methods=["POST"])
    found = examine(app)
    assert states(found) == {"POST /named": "optional", "POST /unnamed": "unprotected"}
    (finding,) = found.findings
    assert (finding.level, finding.advice) == ("problem", "Say in @idempotent(guard) which one.")


def test_the_user() -> None:
    """Behind a middleware only the server can have set it, which is said and is not a problem."""
    app = an_app()
    found = examine(wsgi.Middleware(app, a_guard(scope=scopes.user)))
    (finding,) = found.findings
    assert (finding.check, finding.level) == ("authentication", "note")
    assert "REMOTE_USER" in finding.found
    guard = a_guard(scope=scopes.user)
    app = Flask("shop")
    Retrysafe(guard).init_app(app)
    app.add_url_rule("/orders", "orders", marked(guard), methods=["POST"])
    assert examine(app).findings == ()


def test_hosts_and_rules_without_views() -> None:
    """A host is shown; what only redirects, or only builds addresses, is not a route."""
    app = Flask("shop", host_matching=True, static_host="static.example")
    app.add_url_rule("/orders", "orders", run, methods=["POST"], host="api.example")
    app.add_url_rule("/old", "old", run, methods=["POST"], host="api.example", redirect_to="/orders")
    app.add_url_rule("/built", "built", run, methods=["POST"], host="api.example", build_only=True)
    assert states(examine(app)) == {"POST api.example/orders": "unprotected"}


def test_bare_wsgi() -> None:
    """Any other application has the paths that the middleware covers."""

    def bare(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        raise AssertionError("it is examined, and not called")

    assert states(examine(wsgi.Middleware(bare, a_guard())))["POST /*"] == "optional"
    assert states(examine(bare))["POST /*"] == "unprotected"
