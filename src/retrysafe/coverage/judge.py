"""Whether each endpoint is protected, by what, and what about the whole does not work.

The middlewares around an endpoint are asked in the order in which a request meets them: the first that covers
it claims its key, and if none does, its decorator.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from retrysafe import scopes
from retrysafe._http.marked import Marked, Unbound, bound, exempt_reason, find_mark, is_receiving
from retrysafe._http.routes import Matcher, Routes, any_of
from retrysafe.coverage.model import (
    SAFE,
    UNLISTED,
    Coverage,
    Finding,
    Protection,
    Route,
    by_level,
    enumerated,
)
from retrysafe.coverage.paths import Template
from retrysafe.coverage.stack import Endpoint, Layer, Place, name_of
from retrysafe.coverage.walk import is_application, refuse, walk
from retrysafe.errors import ConfigurationError
from retrysafe.guard import Guard
from retrysafe.policy import Rules


def judge(app: object) -> Coverage:
    if not is_application(app):
        raise refuse(app)
    return judge_endpoints(walk(app, Place()))


def judge_endpoints(endpoints: Iterable[Endpoint]) -> Coverage:
    examination = _Examination()
    for endpoint in endpoints:
        examination.add(endpoint)
    found = examination.result()
    if not examination.is_django:
        return found
    from retrysafe.django.settings import exempt  # whose application it is, so Django is there

    return found.excepting(exempt())


class _Cover(NamedTuple):
    """How much of a route a middleware covers, and under which rules."""

    much: Literal["all", "some", "none"]
    rules: Rules
    remark: str = ""


class _Claim(NamedTuple):
    """What claims the keys of a route, and what stands outside and inside of that."""

    protection: Protection
    outside: Sequence[Layer]
    inside: Sequence[Layer]


class _Examination:
    def __init__(self) -> None:
        self._routes: list[Route] = []
        self._served: set[tuple[str, str, str]] = set()
        self._findings: dict[Finding, list[str]] = {}
        """Each once, and the routes that it is about."""
        self._unmatched: dict[int, tuple[Layer, dict[str, Matcher]]] = {}
        """The paths that a middleware was given and that no route had so far."""
        self.is_django = False
        """Whether a part of it is a project of Django's, which has settings of its own about this."""

    def result(self) -> Coverage:
        findings = [finding._replace(routes=tuple(names)) for finding, names in self._findings.items()]
        for layer, patterns in self._unmatched.values():
            findings += [_unmatched(layer, path) for path in patterns]
        return Coverage(tuple(self._routes), by_level(findings))

    def add(self, endpoint: Endpoint) -> None:
        methods = sorted(endpoint.methods - SAFE, key=_order)
        if not methods:
            return
        found = next((mark for one in endpoint.functions if (mark := find_mark(one))), None)
        exempt = next((why for one in endpoint.functions if (why := exempt_reason(one))), None)
        self.is_django = self.is_django or endpoint.framework == "django"
        prefixes = {layer.prefix for layer in endpoint.place.layers if layer.covers is not None}
        templates = {prefix: endpoint.below(prefix) for prefix in prefixes}
        for layer in endpoint.place.layers:
            if layer.covers is not None:
                self._note_patterns(layer, templates[layer.prefix], known=endpoint.known)
        for method in methods:
            # Of two routes with one path and method the first is served, and the second never.
            served = (endpoint.place.host, endpoint.path, method)
            if served in self._served:
                continue
            self._served.add(served)
            claim, remark = self._claim(endpoint, method, found, templates)
            if claim is None and endpoint.is_known:
                continue
            route = Route(
                method,
                endpoint.path,
                endpoint.name,
                claim.protection if claim else None,
                remark,
                None if claim else exempt,
                endpoint.place.host,
            )
            self._routes.append(route)
            if claim is not None:
                self._check_user(route.name, endpoint, claim)

    def _claim(
        self,
        endpoint: Endpoint,
        method: str,
        mark: Marked | Unbound | None,
        templates: dict[str, Template],
    ) -> tuple[_Claim | None, str]:
        """What claims, and why nothing does or what else is to be known."""
        name = f"{method} {endpoint.place.host}{endpoint.path}"
        layers = endpoint.place.layers
        try:
            found = bound(mark, endpoint.guard)
        except ConfigurationError as error:
            self._find(Finding("options", "problem", f"{error}.", "Each request to it fails."), name)
            return None, "it is decorated, with options that cannot hold"
        guard = _holding(endpoint, found)
        if mark is not None and guard is None:
            # Whatever stands outside: it raises before it runs.
            if endpoint.framework == "django":
                self._find(_NOT_INSTALLED, name)
                return None, f"it is decorated, and MIDDLEWARE lacks {endpoint.protect}"
            names_one, others = isinstance(mark, Marked), bool(endpoint.place.held)
            self._find(
                _not_held(endpoint.protect, others=others) if names_one or not others else _WHICH, name
            )
            return None, f"it is decorated, and {endpoint.protect} was not called with its guard"
        decorator, missed = _decorator(found, guard, method)
        for position, layer in enumerate(layers):
            if layer.covers is None or layer.guard is None or layer.by is None:
                continue
            if layer.by == "django.Middleware" and (mark is not None or _receives(endpoint)):
                continue  # it leaves them to views that claim themselves
            cover = _cover(layer, layer.covers, templates[layer.prefix], method, known=endpoint.known)
            if cover.much != "all":
                missed.append(cover)
                continue
            required = cover.rules.request.required
            if decorator is not None and decorator.rules.names.key == cover.rules.names.key:
                self._find(_claims_first(layer.by), name)
                required = required or decorator.required
            protection = Protection(layer.by, layer.guard, cover.rules, required)
            return _Claim(protection, layers[:position], layers[position + 1 :]), cover.remark
        if decorator is not None:
            # What does not concern the route need not be said of one that is protected.
            remarks = [cover.remark for cover in missed if cover.much == "some"]
            return _Claim(decorator, layers, ()), "; ".join(remarks)
        remarks = [cover.remark for cover in missed]
        if endpoint.remark:
            remarks.append(endpoint.remark)
        if not endpoint.known:
            remarks.append(f"the routes of {endpoint.name} cannot be read")
        return None, "; ".join(remarks) or "no decorator and no middleware protects it"

    def _check_user(self, name: str, endpoint: Endpoint, claim: _Claim) -> None:
        """Whether the user is known where the key is claimed."""
        protection = claim.protection
        if not scopes.needs_user(protection.rules.request.scope):
            return
        if protection.by == "wsgi.Middleware":
            self._find(_user_from_server(), name)
            return
        if protection.by == "@idempotent" and endpoint.framework == "flask":
            return  # the user is Flask's own, and known in the view
        if protection.by == "@idempotent" and endpoint.asks_user:
            return
        if any(layer.sets_user for layer in claim.outside):
            return
        unknown = [layer.name for layer in claim.outside if layer.may_set_user]
        inside = next((layer for layer in claim.inside if layer.sets_user), None)
        if inside is not None:
            self._find(_outside(protection, inside.name, unknown), name)
        elif endpoint.framework == "django":
            if not unknown:
                self._find(_no_user(protection), name)
        elif protection.by == "asgi.Middleware" or not unknown:
            self._find(_user_not_seen(protection, unknown), name)

    def _find(self, finding: Finding, name: str) -> None:
        self._findings.setdefault(finding, []).append(name)

    def _note_patterns(self, layer: Layer, template: Template, *, known: bool) -> None:
        assert layer.covers is not None
        patterns = self._unmatched.setdefault(
            id(layer.covers), (layer, {path: any_of([path]) for path in layer.covers.patterns})
        )[1]
        if not known:
            patterns.clear()  # they may be there
        for path in [
            path
            for path, matches in patterns.items()
            if any(matches(sample) for sample in template.samples_like([path]))
        ]:
            del patterns[path]


def _receives(endpoint: Endpoint) -> bool:
    return any(is_receiving(function) for function in endpoint.functions)


def _order(method: str) -> tuple[int, str]:
    return (UNLISTED.index(method) if method in UNLISTED else len(UNLISTED), method)


def _holding(endpoint: Endpoint, found: Marked | None) -> Guard | None:
    """The guard by which a decorated endpoint claims."""
    return next((guard for guard in endpoint.place.held if found is not None and found.guard is guard), None)


def _decorator(
    found: Marked | None, guard: Guard | None, method: str
) -> tuple[Protection | None, list[_Cover]]:
    if found is None or guard is None:
        return None, []
    if method not in found.rules.wire.methods:
        return None, [
            _Cover("none", found.rules, _not_covered("@idempotent", method, found.rules, guard.profile))
        ]
    return Protection("@idempotent", guard, found.rules, found.rules.request.required), []


def _cover(layer: Layer, covers: Routes, template: Template, method: str, *, known: bool) -> _Cover:
    """Ask the middleware's own rules about paths that requests to this route may have."""
    profile = layer.guard.profile if layer.guard else None
    if method not in covers.rules.wire.methods:
        return _Cover("none", covers.rules, _not_covered(str(layer.by), method, covers.rules, profile))
    with_key = {covers.rules.names.key: b""}
    samples = template.samples_like(covers.patterns)
    try:
        matched = {sample: covers.match(method, sample, with_key) for sample in samples}
    except Exception as error:
        raise ConfigurationError(
            f"paths={covers.paths!r} raised {type(error).__name__} when it was asked about a path of this "
            f"application: {error}"
        ) from error
    inside = [sample for sample, route in matched.items() if route is not None]
    outside = [sample for sample, route in matched.items() if route is None]
    if not inside:
        return _Cover("none", covers.rules, f"{layer.by} covers only {_what(covers)}")
    if not known and (outside or callable(covers.paths)):
        return _Cover("some", covers.rules, f"{layer.by} covers only {_what(covers)}")
    if outside:
        return _Cover("some", covers.rules, f"{layer.by} covers {inside[0]}, and not {outside[0]}")
    first, *rest = [route for route in matched.values() if route is not None]
    others = [route.path or "the rest" for route in rest if route.rules is not first.rules]
    remark = f"routes= has other rules for {enumerated(list(dict.fromkeys(others)))}" if others else ""
    return _Cover("all", first.rules, remark)


def _what(covers: Routes) -> str:
    if callable(covers.paths):
        return f"what {name_of(covers.paths)} selects"
    return enumerated(list(covers.paths or ()))


def _not_covered(by: str, method: str, rules: Rules, profile: object) -> str:
    of = f" of the profile {getattr(profile, 'name', '')}" if profile is not None else ""
    methods = enumerated(sorted(rules.wire.methods, key=_order))
    return f"{by} does not cover {method}: the wire{of} has {methods}"


# --- what is found


def _not_held(protect: str, *, others: bool) -> Finding:
    if others:
        return Finding(
            "guard",
            "problem",
            "decorated with another guard than its application is protected with: each request fails.",
            f"Decorate it with the guard of {protect}, or call that with this guard, too.",
        )
    return Finding(
        "protect",
        "problem",
        "decorated with @idempotent in an application that is not protected: each request fails.",
        f"Call {protect} with the guard of the decorator.",
    )


_NOT_INSTALLED = Finding(
    "protect",
    "problem",
    "decorated with @idempotent in a project without its middleware: each request with a key fails.",
    "Add 'retrysafe.django.Middleware' to MIDDLEWARE.",
)

_WHICH = Finding(
    "guard",
    "problem",
    "decorated without a guard, in an application that has several: each request fails.",
    "Say in @idempotent(guard) which one.",
)


def _claims_first(by: str) -> Finding:
    return Finding(
        "claim",
        "warning",
        f"the key is claimed by {by}, which stands outside, before @idempotent could: the options of the "
        "decorator do not hold.",
        "Leave the path out of paths=, or remove the decorator.",
    )


def _outside(protection: Protection, authentication: str, unknown: Sequence[str]) -> Finding:
    found = (
        f"the key is claimed by {protection.by}, which stands outside of {authentication}, and its scope is "
        f"{protection.scope}: "
    )
    advice = "Move it inside: with add_middleware, what is added first stands innermost."
    if protection.by == "django.Middleware":
        advice = f"Move it below {authentication} in MIDDLEWARE."
    if unknown:
        return Finding(
            "authentication",
            "warning",
            f"{found}the user is known there only if it is set by {enumerated(unknown)}.",
            f"If it is not: {advice[0].lower()}{advice[1:]}",
        )
    return Finding(
        "authentication",
        "problem",
        f"{found}no user is known there, so requests with a key are refused or have another owner.",
        advice,
    )


def _user_not_seen(protection: Protection, unknown: Sequence[str]) -> Finding:
    where = enumerated([*unknown, "what stands in front of the application"]).replace(" and ", " or ")
    return Finding("authentication", "note", f"the scope is {protection.scope}: it has to be set by {where}.")


def _no_user(protection: Protection) -> Finding:
    return Finding(
        "authentication",
        "problem",
        f"the scope is {protection.scope}, and no middleware sets request.user: requests with a key are "
        "refused.",
        "Add django.contrib.auth.middleware.AuthenticationMiddleware to MIDDLEWARE, or say another scope.",
    )


def _user_from_server() -> Finding:
    return Finding(
        "authentication",
        "note",
        "the scope is the authenticated user: REMOTE_USER has to be set by the server, or by a middleware "
        "that stands outside of wsgi.Middleware. A login inside of the application comes too late.",
    )


def _unmatched(layer: Layer, path: str) -> Finding:
    profile = layer.guard.profile if layer.guard else None
    whose = f" (of the profile {profile.name})" if profile and profile.paths and path in profile.paths else ""
    return Finding(
        "paths",
        "warning",
        f"{layer.by} covers {path}{whose}, and the application has no mutating route there.",
        "Correct the path, or remove it.",
    )
