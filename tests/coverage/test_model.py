"""Exemptions, marks in code, and what is said in the end."""

import functools
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from retrysafe import Guard, asgi, scopes
from retrysafe.coverage import examine, exempt
from retrysafe.coverage.model import enumerated
from retrysafe.errors import ConfigurationError
from retrysafe.testing import assert_protected
from tests.coverage.sending import states


async def endpoint(request: Request) -> Response:
    return PlainTextResponse("done")


def an_app(*paths: str) -> Starlette:
    return Starlette(routes=[Route(path, endpoint, methods=["POST", "PUT"]) for path in paths])


@pytest.mark.parametrize(
    ("exemption", "left"),
    [
        ("/login", {"POST /users/{id}", "PUT /users/{id}", "POST /", "PUT /"}),
        ("/login/", {"POST /users/{id}", "PUT /users/{id}", "POST /", "PUT /"}),
        ("POST /login", {"PUT /login", "POST /users/{id}", "PUT /users/{id}", "POST /", "PUT /"}),
        ("/users/{id}", {"POST /login", "PUT /login", "POST /", "PUT /"}),
        ("PUT /users/*", {"POST /users/{id}", "POST /login", "PUT /login", "POST /", "PUT /"}),
        ("/*", set[str]()),
        ("/", {"POST /login", "PUT /login", "POST /users/{id}", "PUT /users/{id}"}),
    ],
)
def test_exemptions(exemption: str, left: set[str]) -> None:
    """A path as the application writes it, a prefix, or one method of either."""
    found = examine(an_app("/login", "/users/{id}", "/")).excepting([exemption])
    assert {route.name for route in found.unprotected} == left
    assert found.findings == ()


@pytest.mark.parametrize(
    "exemption", ["/logn", "DELETE /login", "/log", "/protected", "/users/7", "/login/*"]
)
def test_exemptions_of_nothing(exemption: str) -> None:
    """A typing error, a route that is gone, or one that is protected by now."""
    app = asgi.Middleware(
        an_app("/login", "/users/{id}", "/protected"),
        Guard("memory:", scope=scopes.public()),
        paths=["/protected"],
    )
    (finding,) = examine(app).excepting([exemption]).findings
    assert finding.level == "problem"
    assert finding.found == f"{exemption!r} exempts no route: there is no unprotected one of that path."


@pytest.mark.parametrize("exemption", ["login", "", " ", "post /login", "POST", "POST login", 7, None])
def test_what_is_not_an_exemption(exemption: Any) -> None:
    """An error with what is expected."""
    with pytest.raises(ConfigurationError, match="is not a valid exemption: expected a path"):
        examine(an_app("/login")).excepting([exemption])


def test_one_string_for_a_list() -> None:
    """Its characters are not paths."""
    with pytest.raises(ConfigurationError, match=r"'/login' is one string: expected a list"):
        assert_protected(an_app("/login"), exempt="/login")


def test_a_mark_in_code() -> None:
    """The reason is shown, through other decorators too, and the function is the same."""
    marked = exempt(" a second login does no harm ")(endpoint)
    assert marked is endpoint
    try:

        @functools.wraps(endpoint)
        async def around(request: Request) -> Response:
            return await endpoint(request)

        app = Starlette(routes=[Route("/login", functools.partial(around), methods=["POST"])])
        (route,) = examine(app).routes
        assert (route.state, route.exempt) == ("exempt", "a second login does no harm")
        guarded = examine(asgi.Middleware(app, Guard("memory:", scope=scopes.public())))
        assert states(guarded) == {"POST /login": "optional"}
    finally:
        del endpoint.__retrysafe_exempt__  # type: ignore[attr-defined]  # the tests share it


@pytest.mark.parametrize("reason", ["", "  ", None, endpoint])
def test_a_mark_without_a_reason(reason: Any) -> None:
    """Also `@exempt` without its call."""
    with pytest.raises(ConfigurationError, match="say why the route is unprotected"):
        exempt(reason)


def test_a_marked_class() -> None:
    """It would not be seen: methods are marked."""
    with pytest.raises(ConfigurationError, match="put it on its methods"):
        exempt("because")(Starlette)


# --- the assertion


def test_assert_protected() -> None:
    """Silent where all is well; else the same list in sentences."""
    app = an_app("/login", "/orders")
    guard = Guard("memory:", scope=scopes.public())
    assert_protected(asgi.Middleware(app, guard))
    assert_protected(asgi.Middleware(app, guard, paths=["/orders"]), exempt=["/login"])
    with pytest.raises(AssertionError) as failure:
        assert_protected(asgi.Middleware(app, guard, paths=["/orders"]), exempt=["POST /login", "/logout"])
    assert str(failure.value) == (
        f"PUT /login ({__name__}.endpoint) is not protected: asgi.Middleware covers only /orders\n"
        "'/logout' exempts no route: there is no unprotected one of that path. Correct it, or remove it."
    )


@pytest.mark.parametrize("value", [None, 7, "shop:app", Guard, object(), lambda: None])
def test_what_is_not_an_application(value: Any) -> None:
    """Said, and not taken for one without routes."""
    with pytest.raises(ConfigurationError, match="is not an application: expected"):
        assert_protected(value)


def test_lists_in_sentences() -> None:
    assert enumerated([]) == ""
    assert enumerated(["a"]) == "a"
    assert enumerated(["a", "b", "c"]) == "a, b and c"
    assert enumerated(["a", "b", "c"], most=2) == "a, b and c"
    assert enumerated(["a", "b", "c", "d"], most=2) == "a, b and 2 others"
