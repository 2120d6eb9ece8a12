"""Which requests concern us: everything else passes through untouched."""

import pytest

from retrysafe._http.routes import Routes, any_of
from retrysafe.errors import ConfigurationError
from retrysafe.events import Event, Observers
from retrysafe.guard import Guard
from retrysafe.policy import Options, Paths, Wire
from retrysafe.scopes import public

KEYED = {b"host": b"api.test", b"idempotency-key": b"k"}
KEYLESS = {b"host": b"api.test"}


def the_routes(
    paths: Paths | None = None, routes: dict[str, Options] | None = None, wire: Wire | None = None
) -> Routes:
    return Guard("memory:", scope=public(), wire=wire).routes(paths, routes)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "post"])
def test_covered_methods(method: str) -> None:
    """Those that change something, also as a framework that folds case would read them."""
    assert the_routes().match(method, "/orders", KEYED) is not None


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"])
def test_other_methods_pass(method: str) -> None:
    """Even with a key."""
    assert the_routes().match(method, "/orders", KEYED) is None


def test_methods_are_wire_policy() -> None:
    """A profile may leave one out."""
    routed = the_routes(wire=Wire(methods=frozenset({"POST"})))
    assert routed.match("POST", "/", KEYED) is not None
    assert routed.match("DELETE", "/", KEYED) is None


def test_without_a_key_a_request_passes() -> None:
    """Unless the route requires one: then it concerns us, and is refused where that is decided."""
    routed = the_routes(routes={"/strict": {"required": True}})
    assert routed.match("POST", "/orders", KEYLESS) is None
    assert routed.match("POST", "/strict", KEYLESS) is not None


def test_another_header_is_no_key() -> None:
    """The name is the wire's."""
    routed = the_routes(wire=Wire(key_header="X-Key"))
    assert routed.match("POST", "/", KEYED) is None
    assert routed.match("POST", "/", {b"x-key": b"k"}) is not None


@pytest.mark.parametrize(
    ("paths", "covered", "not_covered"),
    [
        (["/orders"], ["/orders", "/orders/"], ["/orders/1", "/", "/order"]),
        (["/api/*"], ["/api/", "/api/x", "/api/x/y"], ["/api", "/apis", "/"]),
        (["/a", "/b/*"], ["/a", "/b/1"], ["/a/1", "/b"]),
        (["/*"], ["/", "/anything"], []),
        ([], [], ["/", "/orders"]),
        (lambda path: path.endswith("!"), ["/now!"], ["/now"]),
    ],
)
def test_paths_select(paths: Paths, covered: list[str], not_covered: list[str]) -> None:
    """Exact paths, prefixes, or a function of the path."""
    routed = the_routes(paths)
    assert [path for path in covered if routed.match("POST", path, KEYED) is None] == []
    assert [path for path in not_covered if routed.match("POST", path, KEYED) is not None] == []


def test_all_paths_by_default() -> None:
    """Who gives no paths means all of them."""
    assert the_routes().match("POST", "/whatever", KEYED) is not None


def test_the_first_route_counts() -> None:
    """More particular ones are written first."""
    routed = the_routes(routes={"/a/b": {"lease": 1}, "/a/*": {"lease": 2}, "/*": {"lease": 3}})
    leases: list[float] = []
    for path in ("/a/b", "/a/c", "/z"):
        rules = routed.match("POST", path, KEYED)
        assert rules is not None
        leases.append(rules.rules.policy.lease)
    assert leases == [1, 2, 3]


def test_a_route_does_not_select() -> None:
    """`routes` says what differs; `paths` says what is covered."""
    routed = the_routes(paths=["/a"], routes={"/b": {"required": True}})
    assert routed.match("POST", "/b", KEYED) is None


@pytest.mark.parametrize("bad", [["orders"], ["/a*b"], ["*"], ["/*/x"], [""]])
def test_a_path_must_be_one(bad: list[str]) -> None:
    """It is said which one is not, and how paths are written."""
    with pytest.raises(ConfigurationError, match="is not a valid path: expected"):
        any_of(bad)
    with pytest.raises(ConfigurationError):
        the_routes(routes={bad[0]: {}})


def test_one_string_is_no_list() -> None:
    """`paths="/api"` would be four paths of one letter."""
    with pytest.raises(ConfigurationError, match=r"one string: expected a list, like \['/api'\]"):
        any_of("/api")


def test_a_route_is_checked_when_it_is_built() -> None:
    """And not at its first request."""
    with pytest.raises(ConfigurationError, match="lease=-1"):
        the_routes(routes={"/a": {"lease": -1}})


def test_warn_serves_and_counts(caplog: pytest.LogCaptureFixture) -> None:
    """A team sees the share of keyless calls before it makes keys mandatory; one log line per route."""
    events: list[Event] = []
    guard = Guard("memory:", scope=public(), required="warn", on_event=events.append)
    routed = guard.routes(None, None)
    assert routed.match("POST", "/a", KEYLESS) is None
    assert routed.match("POST", "/a", KEYLESS) is None
    assert routed.match("POST", "/a", KEYED) is not None
    assert events == [Event("keyless", "request", "POST", "/a", None)] * 2
    assert len(caplog.records) == 1
    assert "/a" in caplog.text


@pytest.mark.parametrize(
    ("method", "path", "published"),
    [
        ("GET", "/idempotency", True),
        ("POST", "/idempotency", False),
        ("GET", "/idempotency/", False),
        ("GET", "/", False),
    ],
)
def test_the_specification_is_published(method: str, path: str, published: bool) -> None:
    """At its path, for reading."""
    assert the_routes().publishes(method, path) is published


def test_somebody_elses_page_is_not_ours_to_publish() -> None:
    """An absolute address is served elsewhere."""
    routed = the_routes(wire=Wire(specification="https://docs.test/idempotency"))
    assert not routed.publishes("GET", "/idempotency")
    assert not routed.publishes("GET", "https://docs.test/idempotency")


@pytest.mark.parametrize(
    ("paths", "routes", "listed", "rest"),
    [
        (None, ["/a", "/b/*"], ["/a", "/b/*"], None),
        # A route that an earlier one takes everything from is in force nowhere.
        (None, ["/a/*", "/a/b", "/a/b/*", "/c", "/c/"], ["/a/*", "/c"], None),
        (None, ["/a/b", "/a/*"], ["/a/b", "/a/*"], None),
        (None, ["/a", "/*"], ["/a", "/*"], ()),
        # Of a route that is covered in part, that part; of one that is not covered, nothing.
        (["/api/*"], ["/*"], ["/api/*"], ()),
        (["/api/*"], ["/api/search", "/other", "/apis/*"], ["/api/search"], ("/api/*",)),
        (["/api/*", "/v2/*"], ["/*"], ["/api/*", "/v2/*"], ()),
        (["/orders", "/pay/"], ["/orders/", "/pay", "/x"], ["/orders/", "/pay"], ()),
        (["/orders", "/pay"], [], [], ("/orders", "/pay")),
        (["/api/v1/*", "/api/*"], ["/api/v1/x"], ["/api/v1/x"], ("/api/v1/*", "/api/*")),
        (lambda path: path.startswith("/a"), ["/a", "/b", "/c/*"], ["/a", "/c/*"], ()),
        ([], ["/a"], [], ()),
    ],
)
def test_what_is_published_is_in_force(
    paths: Paths | None, routes: list[str], listed: list[str], rest: tuple[str, ...] | None
) -> None:
    """Only routes that a request can reach, and where the guard's own rules are left."""
    routed = the_routes(paths, {path: {"retention": 60 + number} for number, path in enumerate(routes)})
    published = routed.published()
    assert [route.path for route in published.routes] == listed
    assert published.paths == rest
    assert published.unnamed is callable(paths)
    for route in published.routes:
        if callable(paths) and route.path.endswith("*"):
            continue  # which of them a function takes is not known
        found = routed.match("POST", route.path.replace("*", "some/where"), KEYED)
        assert found is not None
        assert found.rules == route.rules
    for path in rest if rest is not None else ["/elsewhere"]:
        found = routed.match("POST", path.replace("*", "else/where"), KEYED)
        assert found is not None
        assert found.path == ""


def test_nobody_need_listen() -> None:
    """Without an observer, a keyless request is only logged."""
    guard = Guard("memory:", scope=public(), required="warn")
    assert isinstance(guard.runtime.observers, Observers)
    assert guard.routes(None, None).match("POST", "/a", KEYLESS) is None
