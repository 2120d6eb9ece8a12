"""What stands before a claim: authentication, permission, validation, routing.  No record is left of it."""

from functools import wraps
from typing import Any

import pytest
from flask import Blueprint, abort, current_app, g, request, url_for
from flask.views import MethodView

from retrysafe import current, scopes
from retrysafe.errors import ConfigurationError
from retrysafe.flask import idempotent
from tests.flask.shop import KEY, Shop, code, order, replayed, send


def test_an_expired_session() -> None:
    """401, whatever key is sent; no record, and the key is free."""
    shop = Shop()
    assert order(shop.client, token="alice.expired").status_code == 401
    assert shop.records() == 0
    assert order(shop.client).status_code == 201


def test_a_revoked_user_gets_no_replay() -> None:
    """The stored response is there, and is not for a user that lost the permission."""
    shop = Shop()
    first, refused = order(shop.client), order(shop.client, token="alice.revoked")
    assert (refused.status_code, first.text in refused.text) == (403, False)


def test_a_refreshed_token_replays() -> None:
    """The scope is who it is, and not by which token."""
    shop = Shop()
    first, second = order(shop.client, token="alice.1"), order(shop.client, token="alice.2")
    assert (replayed(second), second.data) == (True, first.data)
    assert shop.runs == [("alice", 1)]


def test_two_users_never_meet() -> None:
    """The same key and body from another user is another request."""
    shop = Shop()
    first, second = order(shop.client, token="alice"), order(shop.client, token="bob")
    assert (replayed(second), second.data == first.data) == (False, False)
    assert shop.runs == [("alice", 1), ("bob", 1)]


def test_an_anonymous_user() -> None:
    """Where the view lets them in, their keys have no owner: refused, and never a shared scope."""
    shop = Shop()
    shop.post("/open", shop.pay)
    refused = send(shop.client, "/open", token="")
    assert (refused.status_code, code(refused)) == (400, "principal-required")
    assert shop.runs == []


def test_a_body_that_is_corrected() -> None:
    """Validation above the decorator refuses without a claim: the right body runs with the same key."""
    shop = Shop()

    def validated(view: Any) -> Any:
        @wraps(view)
        def check(*args: object, **named: object) -> object:
            if not isinstance(request.get_json().get("amount"), int):
                abort(422)
            return view(*args, **named)

        return check

    @shop.app.post("/valid")
    @validated
    @idempotent(shop.guard)
    def valid() -> str:
        shop.runs.append(request.get_json())
        return "ran"

    assert send(shop.client, "/valid", json={"amount": "many"}).status_code == 422
    assert shop.records() == 0
    assert send(shop.client, "/valid", json={"amount": 2}).status_code == 200
    assert replayed(send(shop.client, "/valid", json={"amount": 2}))
    assert shop.runs == [{"amount": 2}]


def test_validation_inside_the_view() -> None:
    """A 422 of the view's own is an outcome like any other, unless it says that nothing was begun."""
    shop = Shop()

    def strict() -> str:
        if "amount" not in request.get_json():
            if request.args:
                current().not_started()
            abort(422)
        return "ran"

    shop.post("/strict", strict)
    assert [replayed(send(shop.client, "/strict", json={})) for _ in range(2)] == [False, True]
    assert [replayed(send(shop.client, "/strict?said=1", key="2", json={})) for _ in range(2)] == [
        False,
        False,
    ]
    assert send(shop.client, "/strict?said=1", key="2", json={"amount": 1}).text == "ran"


@pytest.mark.parametrize(
    ("path", "method", "status"), [("/nowhere", "POST", 404), ("/orders", "DELETE", 405)]
)
def test_what_routing_answers(path: str, method: str, status: int) -> None:
    shop = Shop()
    assert send(shop.client, path, method=method).status_code == status
    assert shop.records() == 0


def test_a_redirect_to_the_path_with_a_slash() -> None:
    """Flask's own redirect leaves the key free for the request that follows it."""
    shop = Shop()
    shop.post("/carts/", lambda: "ran")
    redirect = send(shop.client, "/carts")
    assert (redirect.status_code, shop.records()) == (308, 0)
    assert send(shop.client, redirect.location or "").text == "ran"


def test_a_required_key() -> None:
    shop = Shop(required=True)
    refused = order(shop.client, key=None)
    assert (refused.status_code, code(refused), shop.runs) == (400, "key-missing", [])
    assert order(shop.client, key=None, token="").status_code == 401  # authentication comes first
    assert order(shop.client).status_code == 201


def test_without_a_key() -> None:
    """It runs each time, and is counted."""
    shop = Shop()
    assert [order(shop.client, key=None).status_code for _ in range(2)] == [201, 201]
    assert (len(shop.runs), shop.records()) == (2, 0)
    counted = {(one.verdict, one.route): times for one, times in shop.guard.counts().items()}
    assert counted == {("keyless", "/orders"): 2}


def test_a_method_that_is_not_covered() -> None:
    shop = Shop()
    view = idempotent(shop.guard)(shop.pay)
    shop.app.add_url_rule("/all", view_func=view, endpoint="all", methods=["GET", "POST"])
    for _ in range(2):
        assert send(shop.client, "/all", method="GET").status_code == 200
    assert len(shop.runs) == 2


class Override:
    """A middleware that changes the method, as Flask's documentation has one."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        environ["REQUEST_METHOD"] = environ.get("HTTP_X_METHOD", environ["REQUEST_METHOD"])
        return self.app(environ, start_response)


def overridden(*, inside: bool) -> Shop:
    shop = Shop()
    holder: Any = shop.app.wsgi_app
    if inside:
        holder.app = Override(holder.app)  # as it is when it was added before init_app
    else:
        shop.app.wsgi_app = Override(holder)  # type: ignore[method-assign]  # Flask's own way

    def change() -> str:
        shop.runs.append(request.method)
        return request.method

    view = idempotent(shop.guard)(change)
    shop.app.add_url_rule("/change", view_func=view, methods=["GET", "PUT", "DELETE"])
    return shop


@pytest.mark.parametrize("inside", [True, False])
def test_a_method_that_a_middleware_changes(inside: bool) -> None:
    """What is compared and recorded is the request that the view got: a DELETE gets no PUT's response."""
    shop = overridden(inside=inside)
    first, second, other = (
        send(shop.client, "/change", headers={"X-Method": method}) for method in ("PUT", "PUT", "DELETE")
    )
    assert (first.text, second.text, replayed(second), code(other)) == ("PUT", "PUT", True, "key-reused")
    assert [record.action for record in shop.store.open_admin().export()] == ["PUT"]


def test_a_method_that_becomes_a_covered_one() -> None:
    """Inside of us it is too late to hold the request: an error, and never an unprotected run."""
    shop = overridden(inside=True)
    shop.app.testing = True
    with pytest.raises(ConfigurationError, match="between Retrysafe and Flask made it a PUT"):
        send(shop.client, "/change", method="GET", headers={"X-Method": "PUT"})
    assert shop.runs == []
    assert send(overridden(inside=False).client, "/change", headers={"X-Method": "PUT"}).text == "PUT"


@pytest.mark.parametrize("key", ['""', '"open', "two words", "k" * 256])
def test_a_malformed_key(key: str) -> None:
    shop = Shop()
    refused = order(shop.client, key=key)
    assert (refused.status_code, code(refused), shop.runs) == (400, "key-invalid", [])


def test_a_scope_from_g() -> None:
    """What `before_request` has found out is known when the view claims."""
    shop = Shop()

    @shop.app.before_request
    def find_tenant() -> None:
        g.tenant = request.headers["X-Tenant"]

    def scope(_: object) -> dict[str, str]:
        return {"tenant": g.tenant}

    def pay() -> str:
        shop.runs.append(g.tenant)
        return "paid"

    shop.post("/g", pay, scope=scope)
    replays = [replayed(send(shop.client, "/g", headers={"X-Tenant": tenant})) for tenant in ("a", "b", "a")]
    assert (replays, shop.runs) == ([False, False, True], ["a", "b"])


def test_a_scope_from_the_path() -> None:
    shop = Shop()

    def pay(tenant: str) -> str:
        shop.runs.append(tenant)
        return "ran"

    shop.post("/<tenant>/pay", pay, scope=scopes.argument("tenant"), fingerprint=None)
    assert not replayed(send(shop.client, "/a/pay"))
    assert not replayed(send(shop.client, "/b/pay"))
    assert replayed(send(shop.client, "/a/pay"))


def test_a_scope_from_the_path_of_a_class() -> None:
    """Which variables a view of a class takes is not known where its decorators are applied."""
    shop = Shop()
    scope = scopes.argument("tenant")

    class Payments(MethodView):
        decorators = [idempotent(shop.guard, scope=scope, fingerprint=None)]  # noqa: RUF012 - see below

        def post(self, tenant: str) -> str:
            shop.runs.append(tenant)
            return "paid"

    shop.app.add_url_rule("/<tenant>/pay", view_func=Payments.as_view("payments"))
    shop.app.add_url_rule("/pay", view_func=Payments.as_view("none"))
    assert [replayed(send(shop.client, f"/{one}/pay")) for one in "aba"] == [False, False, True]
    assert code(send(shop.client, "/pay")) == "principal-required"


def test_the_user_of_a_server() -> None:
    """Without Flask-Login it is whom the server has authenticated."""
    shop = Shop()
    del shop.app.login_manager  # type: ignore[attr-defined]  # Flask-Login sets it
    shop.post("/pay", shop.pay)
    for user in ("alice", "bob", "alice"):
        send(shop.client, "/pay", environ_overrides={"REMOTE_USER": user})
    assert len(shop.runs) == 2


def test_blueprints_and_classes() -> None:
    """Options per route, wherever it is registered."""
    shop = Shop()
    carts = Blueprint("carts", "carts", url_prefix="/carts")

    @carts.post("/<int:number>")
    @idempotent
    def fill(number: int) -> str:
        shop.runs.append(number)
        return url_for("carts.fill", number=number)

    class Payments(MethodView):
        @idempotent(required=True)
        def post(self) -> str:
            shop.runs.append("post")
            return "paid"

        def put(self) -> str:
            shop.runs.append("put")
            return "changed"

    class Refunds(MethodView):
        decorators = [idempotent()]  # noqa: RUF012 - as Flask's documentation has it

        def post(self) -> str:
            shop.runs.append("refund")
            return "refunded"

    shop.app.register_blueprint(carts)
    shop.app.add_url_rule("/payments", view_func=Payments.as_view("payments"))
    shop.app.add_url_rule("/refunds", view_func=Refunds.as_view("refunds"))
    for path in ("/carts/7", "/payments", "/refunds"):
        first, second = send(shop.client, path, key=path), send(shop.client, path, key=path)
        assert (first.status_code, replayed(second), second.data) == (200, True, first.data)
    assert shop.runs == [7, "post", "refund"]
    assert send(shop.client, "/payments", key=None).status_code == 400
    assert [send(shop.client, "/payments", method="PUT").text for _ in range(2)] == ["changed"] * 2
    published = shop.client.get("/idempotency", headers={"Accept": "application/json"}).get_json()
    required = {route["path"]: route["required"] for route in published["routes"]}
    assert required == {"/orders": False, "/carts/<int:number>": False, "/payments": True, "/refunds": False}


def test_the_route_is_known() -> None:
    """Its rule is what verdicts are counted by, and not its path."""
    shop = Shop()
    shop.post("/items/<int:number>", lambda number: current_app.name)
    for number in range(3):
        send(shop.client, f"/items/{number}", key=f"{KEY}{number}")
    assert {one.route: times for one, times in shop.guard.counts().items()} == {"/items/<int:number>": 3}
