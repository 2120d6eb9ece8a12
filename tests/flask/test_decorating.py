"""What is refused when an application is built, and what a decorated function is to other code."""

from functools import wraps
from typing import Any

import pytest
from flask import Blueprint, Flask
from flask.views import View
from flask_sqlalchemy import SQLAlchemy

from retrysafe import Guard, scopes, wsgi
from retrysafe.errors import ConfigurationError
from retrysafe.flask import Retrysafe, idempotent
from tests.flask.shop import KEY, Shop, send

HEADERS = {"Idempotency-Key": KEY, "X-Tenant": "7"}


@pytest.fixture
def guard() -> Guard:
    return Guard("memory:", scope=scopes.header("X-Tenant"))


def make_app(guard: Guard | None = None, **config: Any) -> Flask:
    app = Flask("testing")
    app.testing = True
    app.config.update(config)
    if guard is not None:
        Retrysafe(guard, app)
    return app


@pytest.mark.parametrize("headers", [HEADERS, {}])
def test_an_application_that_is_not_protected(guard: Guard, headers: dict[str, str]) -> None:
    """A clear error, and never an unprotected run."""
    app, runs = make_app(), list[int]()

    @app.post("/pay")
    @idempotent(guard)
    def pay() -> str:
        runs.append(1)
        return "paid"

    with pytest.raises(ConfigurationError, match="pay is decorated with @idempotent, and its application"):
        app.test_client().post("/pay", headers=headers)
    assert runs == []


@pytest.mark.parametrize("between", [False, True])
def test_above_the_route(guard: Guard, between: bool) -> None:
    """Flask has the function below it, which would run unprotected: said at its first request, not run."""
    app, runs = make_app(guard), list[int]()
    shop = Blueprint("shop", "shop")

    def pay() -> str:
        runs.append(1)
        return "paid"

    def logged(view: Any) -> Any:
        return wraps(view)(lambda: view())

    idempotent(required=True)(shop.route("/pay", methods=["GET", "POST"])(logged(pay) if between else pay))
    app.register_blueprint(shop)
    with pytest.raises(ConfigurationError, match=r"pay serves /pay without its @idempotent.*below"):
        app.test_client().post("/pay", headers=HEADERS)
    assert runs == []
    assert app.test_client().get("/pay").text == "paid"  # with or without it, GET is not guarded


def test_with_and_without(guard: Guard) -> None:
    """One function for two routes, of which one is protected, is no mistake."""
    app, runs = make_app(guard), list[int]()

    def pay() -> str:
        runs.append(1)
        return "paid"

    app.post("/v1/pay", endpoint="v1")(pay)
    app.post("/v2/pay", endpoint="v2")(idempotent(pay))
    for path in ("/v1/pay", "/v2/pay"):
        assert [app.test_client().post(path, headers=HEADERS).text for _ in range(2)] == ["paid"] * 2
    assert len(runs) == 3


def test_no_guard_anywhere() -> None:
    app = make_app()
    app.post("/pay")(idempotent(lambda: "paid"))
    with pytest.raises(ConfigurationError, match="the application 'testing' has no guard"):
        app.test_client().post("/pay", headers=HEADERS)


def test_another_guard(guard: Guard) -> None:
    app = make_app(Guard("memory:", scope=scopes.header("X-Tenant")))
    app.post("/pay")(idempotent(guard)(lambda: "paid"))
    with pytest.raises(ConfigurationError, match="with the same guard"):
        app.test_client().post("/pay", headers=HEADERS)


def test_two_guards(guard: Guard) -> None:
    """Each view names its own."""
    other = Guard("memory:", scope=scopes.public())
    app = make_app(guard)
    Retrysafe(other).init_app(app)
    app.post("/one", endpoint="one")(idempotent(guard)(lambda: "one"))
    app.post("/other", endpoint="other")(idempotent(other)(lambda: "other"))
    app.post("/none", endpoint="none")(idempotent(lambda: "none"))
    client = app.test_client()
    for path in ("/one", "/other"):
        assert [client.post(path, headers=HEADERS).text for _ in range(2)] == [path[1:]] * 2
    assert [sum(one.counts().values()) for one in (guard, other)] == [2, 2]
    with pytest.raises(ConfigurationError, match="has 2 guards: say in @idempotent"):
        client.post("/none", headers=HEADERS)


@pytest.mark.parametrize("wrong", ["not a guard", Flask])
def test_what_is_not_a_guard(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="expected a Guard"):
        Retrysafe(wrong)
    with pytest.raises(ConfigurationError, match="expected a Guard"):
        idempotent(wrong, required=True)


def test_what_is_not_an_application(guard: Guard) -> None:
    with pytest.raises(ConfigurationError, match=r"expected an application of Flask's.*wsgi\.Middleware"):
        Retrysafe(guard).init_app(wsgi)  # type: ignore[arg-type]  # that is the mistake


def test_twice(guard: Guard) -> None:
    app = make_app(guard)
    with pytest.raises(ConfigurationError, match="called twice"):
        Retrysafe(guard).init_app(app)


def test_a_class(guard: Guard) -> None:
    with pytest.raises(ConfigurationError, match="of a class, decorate its methods"):

        @idempotent(guard)
        class Pay(View):
            pass


@pytest.mark.parametrize("given", [True, False])
def test_a_scope_that_the_view_does_not_have(guard: Guard, given: bool) -> None:
    """Said where it is decorated; without a guard, where it is first asked for."""
    scope = scopes.argument("tenant")
    if given:
        with pytest.raises(ConfigurationError, match="has no such parameter"):
            idempotent(guard, scope=scope)(lambda: "paid")
        return
    app = make_app(guard)
    app.post("/pay")(idempotent(scope=scope)(lambda: "paid"))
    with pytest.raises(ConfigurationError, match="has no such parameter"):
        app.test_client().post("/pay", headers=HEADERS)


def test_options_are_checked(guard: Guard) -> None:
    """Also without a guard, as far as they can be."""
    with pytest.raises(ConfigurationError, match="effects='databse' is not a choice"):
        idempotent(effects="databse")(lambda: "paid")  # type: ignore[call-overload]  # that is the mistake

    async def scope(_: object) -> str:
        return "alice"

    with pytest.raises(ConfigurationError, match="is asynchronous"):
        idempotent(guard, scope=scope)(lambda: "paid")
    with pytest.raises(ConfigurationError, match="retention=0"):
        idempotent(guard, retention=0)(lambda: "paid")
    with pytest.raises(ConfigurationError, match="is asynchronous"):
        Retrysafe(Guard("memory:", scope=scope), make_app())


def test_called_by_other_code(guard: Guard) -> None:
    """Outside of a request it is the function that it was."""

    @idempotent(guard)
    def pay(amount: int) -> int:
        return amount

    assert pay(5) == 5
    assert pay.__name__ == "pay"


def test_called_in_a_context_that_no_server_made(guard: Guard) -> None:
    """There is no response that could be stored: the error says by which way to come in."""
    app = make_app(guard)

    @app.post("/pay")
    @idempotent(guard)
    def pay() -> str:
        return "paid"

    with (
        app.test_request_context("/pay", method="POST", headers=HEADERS),
        pytest.raises(ConfigurationError, match=r"did not come through app\.wsgi_app.*app\.test_client\(\)"),
    ):
        pay()


@pytest.mark.parametrize("wrong", ["sqlite:///shop.db", object()])
@pytest.mark.parametrize("given", [True, False])
def test_what_is_not_a_database(guard: Guard, wrong: Any, given: bool) -> None:
    with pytest.raises(ConfigurationError, match="expected Flask-SQLAlchemy's SQLAlchemy object"):
        Retrysafe(guard if given else None, db=wrong)


def test_a_database_without_the_application() -> None:
    """`db.init_app(app)` comes first: said as such, and not by a store that has no engine."""
    with pytest.raises(ConfigurationError, match=r"call db\.init_app\(app\) before"):
        Retrysafe(db=SQLAlchemy()).init_app(make_app(RETRYSAFE_SCOPE=scopes.user))


def test_two_claims_of_one_request(guard: Guard) -> None:
    app = make_app(guard)

    @idempotent(guard)
    def inner() -> str:
        return "inner"

    app.post("/outer")(idempotent(guard)(lambda: inner()))
    with pytest.raises(ConfigurationError, match="two decorated endpoints claimed the key"):
        app.test_client().post("/outer", headers=HEADERS)


@pytest.mark.parametrize("outermost", [False, True])
def test_below_a_middleware_that_has_claimed(guard: Guard, outermost: bool) -> None:
    """One claim per request: what a middleware outside guards is not claimed again inside."""
    app, runs = make_app(), list[int]()

    def wrap() -> None:
        app.wsgi_app = wsgi.Middleware(app.wsgi_app, guard)  # type: ignore[method-assign]  # Flask's own way

    if not outermost:
        wrap()
    Retrysafe(guard, app)
    if outermost:
        wrap()

    @app.post("/pay")
    @idempotent
    def pay() -> str:
        runs.append(1)
        return str(len(runs))

    assert [app.test_client().post("/pay", headers=HEADERS).text for _ in range(2)] == ["1", "1"]
    assert runs == [1]


# --- app.config


def test_a_guard_from_the_configuration() -> None:
    """Everything that a guard takes has a name there; each application has a guard of its own."""
    extension = Retrysafe()
    config: dict[str, Any] = {
        "RETRYSAFE_STORE": "memory:",
        "RETRYSAFE_SCOPE": scopes.header("X-Tenant"),
        "RETRYSAFE_PROFILE": "erp",
        "RETRYSAFE_REQUIRED": True,
    }
    app, other = make_app(**config), make_app(**config)
    for one in (app, other):
        extension.init_app(one)
        one.post("/pay")(idempotent(lambda: "paid"))
    client = app.test_client()
    assert client.post("/pay").status_code == 400
    first, second = (client.post("/pay", headers=HEADERS) for _ in range(2))
    assert (first.headers["Idempotency-Key"], second.headers["X-Idempotent-Replayed"]) == (KEY, "true")
    assert "X-Idempotent-Replayed" not in other.test_client().post("/pay", headers=HEADERS).headers
    with app.app_context():
        assert extension.guard is app.extensions["retrysafe"].guard


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"RETRYSAFE_SCOPE": scopes.user}, "RETRYSAFE_STORE is missing"),
        ({"RETRYSAFE_STORE": "memory:"}, "RETRYSAFE_SCOPE is missing"),
        (
            {"RETRYSAFE_STOER": "memory:"},
            "has RETRYSAFE_STOER, which is not an option: there are RETRYSAFE_A",
        ),
        (
            {"RETRYSAFE_STORE": "memory:", "RETRYSAFE_SCOPE": scopes.user, "RETRYSAFE_EFFECTS": "here"},
            "effects='here' is not a choice",
        ),
    ],
)
def test_a_configuration_that_cannot_be(config: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        Retrysafe().init_app(make_app(**config))


def test_a_guard_and_a_configuration(guard: Guard) -> None:
    """What the configuration says would be ignored, and so it is refused."""
    with pytest.raises(ConfigurationError, match="has RETRYSAFE_REQUIRED, and Retrysafe"):
        Retrysafe(guard).init_app(make_app(RETRYSAFE_REQUIRED=True))


def test_published_without_a_key() -> None:
    """The specification is served before the application is asked, to GET and HEAD."""
    shop = Shop()
    client = shop.client
    assert client.get("/idempotency").status_code == 200
    head = client.head("/idempotency")
    assert (head.status_code, head.data) == (200, b"")
    assert send(client, "/idempotency", key=None).status_code == 404
