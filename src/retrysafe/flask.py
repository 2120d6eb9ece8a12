"""Flask: views that claim their key themselves, after authentication and whatever else stands before them.

    from retrysafe.flask import Retrysafe, idempotent

    Retrysafe(guard).init_app(app)

    @app.post("/orders")
    @login_required
    @idempotent(guard, required=True, effects="database")
    def create(): ...

The decorator stands next to the function, below every other.  A 401, a 403 or a redirect never had a claim,
and each is asked before a replay too.  With an application factory, leave the guard to `app.config`:

    retrysafe = Retrysafe(db=db)          # db: Flask-SQLAlchemy's, if effects are in its database

    def create_app():
        app = Flask(__name__)
        app.config["RETRYSAFE_SCOPE"] = scopes.user       # Flask-Login's
        db.init_app(app)
        retrysafe.init_app(app)

    @blueprint.post("/orders")
    @idempotent(required=True)
    def create(): ...
"""

import inspect
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Unpack, cast, overload

from flask import Flask, current_app, got_request_exception, has_request_context, request, request_started
from werkzeug.datastructures import Headers
from werkzeug.exceptions import HTTPException, InternalServerError
from werkzeug.routing import RequestRedirect
from werkzeug.wrappers import Response as WerkzeugResponse

from retrysafe import scopes, stores
from retrysafe._core import attempt as attempts
from retrysafe._core import model
from retrysafe._core.problems import Problem
from retrysafe._http.held import name_of
from retrysafe._http.marked import (
    ABOVE,
    RECEIVER_ABOVE,
    Marked,
    Receiving,
    Unbound,
    bare,
    bare_receiver,
    find_mark,
    find_receiving,
    mark,
    marked,
)
from retrysafe._http.render import describe
from retrysafe._http.routes import Protected, Route, any_path
from retrysafe.errors import ConfigurationError, NotDone
from retrysafe.guard import Guard
from retrysafe.policy import Options, Rules, check_options
from retrysafe.wsgi.environ import GUARDED, translate, variable
from retrysafe.wsgi.exchange import check_rules
from retrysafe.wsgi.held import HeldExchange, Holder

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

    from flask_sqlalchemy import SQLAlchemy

__all__ = ["Retrysafe", "idempotent"]

F = TypeVar("F", bound=Callable[..., Any])

_EXTENSION = "retrysafe"


class Retrysafe:
    """Holds the requests to an application, so that its decorated views can claim their keys.

    Without a `guard` one is built for each application from its configuration: `RETRYSAFE_STORE`,
    `RETRYSAFE_SCOPE` and whatever else a `Guard` takes, in capital letters.  `db` is Flask-SQLAlchemy's
    object: its sessions join the transactions of guarded calls, and its database is the store where
    `RETRYSAFE_STORE` names no other.
    """

    def __init__(
        self, guard: Guard | None = None, app: Flask | None = None, *, db: "SQLAlchemy | None" = None
    ) -> None:
        if guard is not None and not isinstance(guard, Guard):
            raise ConfigurationError(
                f"Retrysafe({guard!r}): expected a Guard, such as Guard(store, scope=...), or none and "
                "RETRYSAFE_STORE in the application's configuration"
            )
        if db is not None:
            _check_database(db)
        self._guard = guard
        self._db = db
        if app is not None:
            self.init_app(app)

    @property
    def guard(self) -> Guard:
        """The guard of the application that is running."""
        return self._guard or guard_of(current_app)

    def init_app(self, app: Flask) -> None:
        """Hold the requests to this application."""
        if not isinstance(app, Flask):
            raise ConfigurationError(
                f"init_app({app!r}): expected an application of Flask's; for any other WSGI application "
                "there is retrysafe.wsgi.Middleware"
            )
        guards = guards_of(app)
        if self._guard in guards or (guards and self._guard is None):
            raise ConfigurationError("init_app(app) was called twice: call it once for each guard")
        guard = self._guard or _configured(app, self._db)
        if self._guard is not None and (said := sorted(_said(app))):
            raise ConfigurationError(
                f"the application's configuration has {', '.join(said)}, and Retrysafe(guard) has a guard "
                "already, which they would not change: say it in Guard(...), or leave the guard out"
            )
        check_rules(guard.rules)
        if self._db is not None:
            from retrysafe.sqlalchemy.flask_sqlalchemy import join_sessions

            join_sessions(self._db, app, guard)
        app.extensions[_EXTENSION] = Extension((*guards, guard))

        def protected() -> Iterator[Protected]:
            for path, function, methods in routes(app):
                found = marked(function, guard)
                if found is not None and found.guard is guard:
                    yield Protected(path, found.rules, methods)

        app.wsgi_app = Holder(  # type: ignore[method-assign]  # Flask's own way
            app.wsgi_app, guard, protected, _Receiving(app, guard)
        )
        if not guards:
            request_started.connect(_refuse_bare_view, app)
            got_request_exception.connect(_note_failure, app)
            # An application's own handler for it counts, whether it was registered before or comes later.
            if NotDone not in app.error_handler_spec[None][None]:
                app.register_error_handler(NotDone, _not_done)


class _Receiving:
    """As what a request is held that goes to a view which takes deliveries of events."""

    def __init__(self, app: Flask, guard: Guard) -> None:
        self._app = app
        self._guard = guard
        self._looked_at = -1
        self._found = False

    def __call__(self, environ: "WSGIEnvironment") -> type[HeldExchange] | None:
        views = self._app.view_functions
        if len(views) != self._looked_at:
            self._looked_at = len(views)
            self._found = any(self._receiving(view) for view in views.values())
        if not self._found:
            return None
        try:
            # As Flask itself will: hosts and subdomains may count.
            adapter = self._app.create_url_adapter(self._app.request_class(environ))
            endpoint = adapter.match()[0] if adapter is not None else ""
        except (HTTPException, RequestRedirect):
            return None
        found = self._receiving(views.get(endpoint), environ["REQUEST_METHOD"])
        return None if found is None else found.exchange

    def _receiving(self, view: object, method: str | None = None) -> Receiving | None:
        """What takes deliveries there; `None` for the method: by any."""
        if (found := find_receiving(view, self._guard)) is not None:
            return found
        for one in getattr(view, "methods", None) or () if method is None else (method,):
            function = getattr(getattr(view, "view_class", None), one.lower(), None)
            if (found := find_receiving(function, self._guard)) is not None:
                return found
        return None


class Extension(NamedTuple):
    """`app.extensions["retrysafe"]`"""

    guards: tuple[Guard, ...]

    @property
    def guard(self) -> Guard:
        """The guard of views that name none."""
        first, *others = self.guards
        if others:
            raise ConfigurationError(
                f"this application has {len(self.guards)} guards: say in @idempotent(guard) which one"
            )
        return first


def guards_of(app: Flask) -> tuple[Guard, ...]:
    """The guards of an application."""
    found = app.extensions.get(_EXTENSION)
    return found.guards if isinstance(found, Extension) else ()


def guard_of(app: Flask) -> Guard:
    """The guard of views that name none."""
    found = app.extensions.get(_EXTENSION)
    if not isinstance(found, Extension):
        raise ConfigurationError(
            f"the application {app.name!r} has no guard: call Retrysafe(guard).init_app(app) where it is made"
        )
    return found.guard


@overload
def idempotent(guard: F, /) -> F: ...
@overload
def idempotent(guard: Guard | None = None, /, **options: Unpack[Options]) -> Callable[[F], F]: ...
def idempotent(guard: Any = None, /, **options: Unpack[Options]) -> Any:
    """Have a view run once per key.

    It claims when Flask calls the function: after `before_request` functions and every decorator above this
    one, which are therefore asked before a replay too.  Without a guard, it is that of the application which
    serves the view.  `options` are those of any route, such as `required`, `scope`, `fingerprint`,
    `retention`, `no_store` and `effects`; `scope=scopes.argument("tenant")` takes a variable of the path.
    """
    if guard is not None and not isinstance(guard, Guard):
        if not callable(guard) or options:
            raise ConfigurationError(f"@idempotent({guard!r}): expected a Guard, or nothing")
        return idempotent()(guard)  # @idempotent, without a call

    def decorate(function: F) -> F:
        if inspect.isclass(function) or not inspect.isroutine(function):
            raise ConfigurationError(
                f"@idempotent was put on {function!r}: expected a function; of a class, decorate its "
                "methods, or have it in its decorators = [idempotent(guard)]"
            )
        view = _View(function, guard, options)

        @wraps(function)
        def called(*args: object, **named: object) -> object:
            if has_request_context():
                return view.serve_awaited(args, named) if view.is_awaited() else view.serve(args, named)
            return function(*args, **named)  # by other code, such as a test, and not by Flask

        mark(called, Unbound(view.rules_of) if guard is None else Marked(view.rules_of(guard), guard))
        return cast("F", called)

    return decorate


def _refuse_bare_view(app: Flask, **_: object) -> None:
    """Refuse a request to a view that Flask was given without its decorator, because it stands above."""
    view, views = app.view_functions.get(request.endpoint or ""), app.view_functions.values()
    for guard in guards_of(app):
        function = bare(view, guard, views)
        if function is not None and request.method in guard.rules.wire.methods:
            raise ConfigurationError(
                ABOVE.format(getattr(function, "__qualname__", function), route_template())
            )
        function = bare_receiver(view, guard, views)
        if function is not None and request.method != "OPTIONS":
            raise ConfigurationError(
                RECEIVER_ABOVE.format(getattr(function, "__qualname__", function), route_template())
            )


class _View:
    """A decorated function, and what holds for it."""

    def __init__(self, function: Callable[..., Any], guard: Guard | None, options: Options) -> None:
        self._function = function
        self._guard = guard
        self._options = options
        check_options(options)  # without a guard, the rest is known only where it is served
        self._asynchronous = inspect.iscoroutinefunction(function)
        parameters = inspect.signature(function).parameters
        self._parameters = tuple(parameters)
        self._takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        """As views of classes do, which pass it on: then only the route knows what there is."""
        self._rules: dict[Guard, Rules] = {}

    def rules_of(self, guard: Guard) -> Rules:
        """What holds for it under this guard."""
        rules = self._rules.get(guard)
        if rules is None:
            rules = guard.compile_route(self._options)
            check_rules(rules)
            if not self._takes_any:
                scopes.check_arguments(rules.request.scope, self._parameters, self._function.__qualname__)
            self._rules[guard] = rules
        return rules

    def is_awaited(self) -> bool:
        """Whether it is called on an event loop, by an asynchronous decorator above ours."""
        if not self._asynchronous:
            return False
        import asyncio  # only asynchronous views come here

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return False
        return True

    def serve(self, args: tuple[object, ...], named: dict[str, object]) -> object:
        with self._claimed(args, named) as settled:
            return self._run(args, named) if settled is None else settled

    async def serve_awaited(self, args: tuple[object, ...], named: dict[str, object]) -> object:
        # Blocking, until the function runs: the loop is this request's own.
        with self._claimed(args, named) as settled:
            return await self._function(*args, **named) if settled is None else settled

    @contextmanager
    def _claimed(
        self, args: tuple[object, ...], named: dict[str, object]
    ) -> Generator[WerkzeugResponse | None]:
        """The response to this request, if it is there already; otherwise what runs in it is guarded."""
        environ = request.environ
        guard = self._guard or guard_of(current_app)
        if name_of(guard) not in environ:
            name = self._function.__qualname__
            found = current_app.extensions.get(_EXTENSION)
            if isinstance(found, Extension) and guard in found.guards:
                raise ConfigurationError(
                    f"{name} is decorated with @idempotent, and this request did not come through "
                    "app.wsgi_app, as in app.test_request_context(): send it with app.test_client(), or call "
                    f"{name}.__wrapped__, which is not protected"
                )
            raise ConfigurationError(
                f"{name} is decorated with @idempotent, and its application is not protected: call "
                "Retrysafe(guard).init_app(app), with the same guard"
            )
        rules = self.rules_of(guard)
        held: HeldExchange | None = environ[name_of(guard)]
        if GUARDED in environ:
            yield None  # a middleware outside has claimed the key already
        elif held is None or not held.keyed:
            yield self._without_key(guard, rules)
        else:
            environ[model.ARGUMENTS] = dict(zip(self._parameters, args, strict=False)) | named
            claimed = held.claim_key(rules, _Request(translate(environ)), route_template())
            if not isinstance(claimed, attempts.Attempt):
                yield respond(claimed)
                return
            attempts.enter(claimed)
            nothing_done: tuple[type[Exception], ...] = (NotDone, *rules.outcome.retry_on)
            try:
                yield None
            except nothing_done:
                claimed.not_started()  # said here: a handler of the application may make a response of it
                raise

    def _without_key(self, guard: Guard, rules: Rules) -> WerkzeugResponse | None:
        """The refusal of a request that has no key, where it needs one."""
        method = request.method
        if method not in rules.wire.methods:
            return None
        if variable(rules.names.key) in request.environ:
            raise ConfigurationError(
                "this request has a key and was not held: a middleware between Retrysafe and Flask made "
                f"it a {method}, or added the key. Add it after Retrysafe(guard).init_app(app)"
            )
        required = rules.request.required
        if required is True:
            return respond(_refuse_keyless(guard, rules))
        guard.runtime.keyless(method, request.path, route_template(), warn=required == "warn")
        return None

    def _run(self, args: tuple[object, ...], named: dict[str, object]) -> object:
        return current_app.ensure_sync(self._function)(*args, **named)


def _refuse_keyless(guard: Guard, rules: Rules) -> model.Response:
    found = translate(request.environ)
    exchange = HeldExchange(
        found, Route("", any_path, rules), current_app.wsgi_app, guard, request.environ, _no_server
    )
    refused = exchange.claim_key(rules, found, route_template())
    assert isinstance(refused, model.Response), "without a key there is nothing to claim"
    return refused


def _no_server(*_: object) -> Any:  # noqa: ANN401 - as a server's
    raise AssertionError("a refusal is sent by the application")


class _Request(model.Request):
    """The head of a request as Flask has it, inside of all middlewares, where it is known who asks."""

    __slots__ = ()

    def __init__(self, found: model.Request) -> None:
        super().__init__(
            found.method,
            found.path,
            found.query,
            found.headers,
            found.scheme,
            found.principal,
            found.native,
            found.root,
            found.fields,
        )

    @property
    def principal(self) -> object:
        """Flask-Login's user where there is one, else whom the server has authenticated."""
        if not hasattr(current_app, "login_manager"):
            return self._principal
        from flask_login import current_user  # type: ignore[import-untyped]  # it has no types

        return _LoggedIn(current_user.get_id()) if current_user.is_authenticated else None


class _LoggedIn(NamedTuple):
    """By what Flask-Login stores of a user in a session."""

    identity: str | None


def route_template() -> str:
    return request.url_rule.rule if request.url_rule is not None else ""


def respond(response: model.Response) -> WerkzeugResponse:
    """A replay or a problem, as `after_request` functions and the session get it."""
    made = current_app.response_class(response.body, response.status)
    made.headers = Headers([(name.decode(), value.decode("latin-1")) for name, value in response.headers])
    return made


# --- exceptions


def _note_failure(_: Flask, exception: Exception, **__: object) -> None:
    """Flask is about to make its own page of an exception, unless the application has a handler for it."""
    for held in _holding():
        held.failed(exception, 500, _STOCK_PAGE)


_STOCK_PAGE = InternalServerError().get_body().encode()


def _not_done(error: NotDone) -> WerkzeugResponse:
    """`NotDone` as its problem; with a key, the flow makes the response and this one is not sent."""
    guards = guards_of(current_app)
    problem = Problem("not-done", str(error), error.retry_after)
    response = describe(translate(request.environ), guards[0].rules, problem)
    for held in _holding():
        held.failed(error, response.status, response.body)
    return respond(response)


def _holding() -> Iterator[HeldExchange]:
    for guard in guards_of(current_app):
        held = request.environ.get(name_of(guard))
        if isinstance(held, HeldExchange):
            yield held


# --- what an application says


_GUARDS_OWN = ("store", "secret", "grace", "on_event", "wire", "profile", "wait_threads")


def _said(app: Flask) -> dict[str, Any]:
    """What the application's configuration says about its guard, by the names that it has there."""
    config = cast("dict[str, Any]", app.config)
    return {name: value for name, value in config.items() if name.startswith("RETRYSAFE_")}


def _configured(app: Flask, db: "SQLAlchemy | None") -> Guard:
    said = {name.removeprefix("RETRYSAFE_").lower(): value for name, value in _said(app).items()}
    known = {*_GUARDS_OWN, *Options.__annotations__}
    if unknown := sorted(set(said) - known):
        raise ConfigurationError(
            f"the application's configuration has RETRYSAFE_{unknown[0].upper()}, which is not an option: "
            f"there are {', '.join(f'RETRYSAFE_{name.upper()}' for name in sorted(known))}"
        )
    store = said.pop("store", None)
    if store is not None and db is not None and said.get("effects") == "database":
        raise ConfigurationError(
            'RETRYSAFE_STORE and Retrysafe(db=db) name two stores, and RETRYSAFE_EFFECTS is "database": '
            "leave RETRYSAFE_STORE out, so that the records are in the database of db"
        )
    if store is None:
        if db is None:
            raise ConfigurationError(
                "RETRYSAFE_STORE is missing in the application's configuration: set it to a store such as "
                '"sqlite:///keys.db", or pass Retrysafe(db=db) for the database of Flask-SQLAlchemy'
            )
        serving: object = app.extensions.get("sqlalchemy")
        if serving is not db:
            raise ConfigurationError(
                f"the database that Retrysafe(db=db) was given does not serve the application {app.name!r}: "
                "call db.init_app(app) before, or set RETRYSAFE_STORE"
            )
        with app.app_context():
            store = stores.from_engine(db.engine)
    if "scope" not in said:
        raise ConfigurationError(
            "RETRYSAFE_SCOPE is missing in the application's configuration: say whose keys they are, with "
            "scopes.user for Flask-Login's user, or a function of the request"
        )
    return Guard(store, **said)


def routes(app: Flask) -> Iterator[tuple[str, object, frozenset[str]]]:
    """Path, function and methods of every view, those of classes included."""
    for rule in app.url_map.iter_rules():
        view = app.view_functions.get(rule.endpoint)
        methods = frozenset(rule.methods or ())
        if view is None:
            continue
        view_class = getattr(view, "view_class", None)
        if view_class is None or find_mark(view) is not None:
            yield rule.rule, view, methods
            continue
        for method in methods:
            if (function := getattr(view_class, method.lower(), None)) is not None:
                yield rule.rule, function, frozenset({method})


def _check_database(db: object) -> None:
    try:
        from flask_sqlalchemy import SQLAlchemy
    except ImportError:
        is_one = False
    else:
        is_one = isinstance(db, SQLAlchemy)
    if not is_one:
        raise ConfigurationError(
            f"db= is a {type(db).__name__}: expected Flask-SQLAlchemy's SQLAlchemy object. "
            "For another database, build Guard(stores.from_engine(engine), ...), and use sessionmaker(guard)"
        )
