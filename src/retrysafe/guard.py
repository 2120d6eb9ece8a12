"""`Guard`: the one noun that users meet. A store, a scope, a policy.

    guard = Guard("sqlite:///keys.db", scope=scopes.header("X-Tenant"))

It holds what all its routes share and compiles what each of them says; what happens to a request is decided
in `protocol.py`.
"""

import os
import signal
import time
from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING, Unpack

from retrysafe import scopes, stores
from retrysafe._core.attempt import DEFAULT_SECRET
from retrysafe._core.keys import MAKE_A_SECRET, Secret
from retrysafe._core.times import Duration, seconds
from retrysafe._http.routes import Routes
from retrysafe._runtime.admission import WAIT_THREADS
from retrysafe._runtime.runtime import Runtime
from retrysafe.errors import ConfigurationError, StoreError
from retrysafe.events import Counted, Observer, Observers, log
from retrysafe.policy import Options, Paths, Rules, Wire, compile_rules, layered
from retrysafe.stores.contract import Store

if TYPE_CHECKING:
    from retrysafe.profiles import Profile

_POLL = 0.02
"""How often a drain looks whether the last handler is done: unnoticeable, and it costs nothing."""

_UNUSABLE = "the store cannot be used, guarded requests will be refused with 503: %s"


class Guard:
    """Makes requests safe to repeat.

    `store` is a `Store` or the URL of one.  `scope`, and the rest of `Options`, hold for every route that
    does not say otherwise.  `profile` names what the guard says where it is not told: a wire, options and
    paths; the environment overrides a profile's options, and a keyword overrides both.  `wire` replaces
    the profile's as a whole.  `secret` goes into derived keys, and into digests of credentials and of keys
    that are not stored.  `on_event` is called with every verdict.  `grace` is how long a shutdown waits for
    running handlers.  `wait_threads` is how many threads of a process may wait (`in_flight="wait"`) outside
    of event loops.
    """

    def __init__(
        self,
        store: Store | str,
        *,
        secret: str | bytes | None = None,
        grace: Duration = 30.0,
        on_event: Observer | None = None,
        wire: Wire | None = None,
        profile: "str | Profile | None" = None,
        wait_threads: int = WAIT_THREADS,
        **options: Unpack[Options],
    ) -> None:
        _check(store, on_event)
        self.grace = _grace(grace)
        self.profile = _named(profile)
        self._options = layered(_said_by(self.profile, options), options)
        self._secret = _as_secret(secret)
        self._envelope_reported = False
        self.wire = wire or (self.profile.wire if self.profile else Wire())
        self.largest_request = 0
        """The longest body that any route of this guard may claim with."""
        self.lives: set[object] = set()
        """Of the applications that have started with this guard and not stopped; several may share it."""
        self.runtime = Runtime(
            _opened(store, self.profile) if isinstance(store, str) else store,
            Observers(on_event),
            self._secret or DEFAULT_SECRET,
            _wait_threads(wait_threads),
        )
        self.rules = self.compile({})

    @property
    def store(self) -> Store:
        return self.runtime.store

    @property
    def options(self) -> Options:
        """What holds for every route that does not say otherwise."""
        return self._options

    def compile(self, options: Options, wire: Wire | None = None) -> Rules:
        """The rules of a route or operation that says `options`, and for the rest what the guard says."""
        rules = compile_rules(
            layered(self._options, options), wire or self.wire, self._secret, self._report_envelope
        )
        if not rules.policy.keep_key and self._secret is None:
            raise ConfigurationError(
                "keep_key=False was given without a secret: a weak key could be guessed from its digest. "
                + MAKE_A_SECRET
            )
        if rules.policy.effects == "database" and not hasattr(self.store, "joint"):
            raise ConfigurationError(
                f'effects="database" means the database of the records, and {self.store!r} is in none: '
                "use a store in the application's own, such as stores.from_engine(engine)"
            )
        self.largest_request = max(self.largest_request, rules.request.max_request)
        return rules

    def compile_route(self, options: Options) -> Rules:
        """As `compile`, for requests: their keys are the clients', and each client's own."""
        rules = self.compile(options)
        if scopes.of_service(rules.request.scope) is not None:
            raise ConfigurationError(scopes.SERVICE_FOR_REQUESTS)
        return rules

    def routes(self, paths: Paths | None, routes: Mapping[str, Options] | None) -> Routes:
        """Which requests concern this guard, for an adapter.  Without `paths`, those of the profile."""
        if paths is None and self.profile is not None:
            paths = self.profile.paths
        return Routes(self.compile_route, self.runtime.keyless, paths, routes)

    def held_routes(self) -> Routes:
        """The same for an adapter that holds requests until their endpoints claim, by rules of their own."""
        return Routes(self.compile, self.runtime.keyless, None, None)

    def counts(self) -> dict[Counted, int]:
        """How calls have ended in this process, by verdict, door, route and source."""
        return {Counted(*ended): times for ended, times in self.runtime.leases.counts().items()}

    def check(self) -> None:
        """Say in the log of an application that starts if its store cannot be used."""
        try:
            self.runtime.store.look(bytes(32))
        except StoreError as trouble:
            log.error(_UNUSABLE, trouble)

    async def check_async(self) -> None:
        """The same without blocking the event loop."""
        try:
            await self.runtime.aio.look(bytes(32))
        except StoreError as trouble:
            log.error(_UNUSABLE, trouble)

    def _report_envelope(self, error: Exception) -> None:
        # Once: it is the same function and most likely the same mistake for each problem after it.
        if not self._envelope_reported:
            self._envelope_reported = True
            log.error(
                "Wire(render_problem=...) failed, clients are sent the standard problem instead: %r",
                error,
                exc_info=error,
            )

    def drain(self, grace: Duration | None = None) -> int:
        """Claim nothing new, and wait for what runs.  Returns how many were still running in the end.

        New keys get 503 `draining`; replays go on.  A claim whose handler has not begun is
        released.  Handlers that outlive the grace time keep their lease until the process ends.
        """
        deadline = self._begin_draining(grace)
        while self.runtime.unfinished() and time.monotonic() < deadline:
            time.sleep(_POLL)
        return self._end_draining()

    async def drain_async(self, grace: Duration | None = None) -> int:
        """The same without blocking the event loop."""
        from asyncio import sleep

        deadline = self._begin_draining(grace)
        while self.runtime.unfinished() and time.monotonic() < deadline:  # noqa: ASYNC110 - threads run calls too
            await sleep(_POLL)
        return self._end_draining()

    def drain_on(self, *signals: signal.Signals) -> None:
        """Stop claiming as soon as a signal arrives, then do whatever was going to be done about it.

        For servers that tell the application only after they have waited for its requests.  Call it when
        the application starts up: servers install handlers of their own before that, in place of any other.
        """
        for number in signals or (signal.SIGTERM,):
            previous = signal.getsignal(number)
            if previous is None:
                raise ConfigurationError(
                    f"{number.name} is handled outside of Python, where it cannot be passed on to: call "
                    "guard.drain() from whatever handles it"
                )

            def handle(received: int, frame: FrameType | None, previous: object = previous) -> None:
                self.runtime.draining = True
                if callable(previous):
                    previous(received, frame)
                elif previous == signal.SIG_DFL:
                    signal.signal(received, signal.SIG_DFL)
                    signal.raise_signal(received)

            signal.signal(number, handle)

    def resume(self) -> None:
        """Claim again after a drain, as an application does that is started a second time."""
        self.runtime.draining = False

    def close(self) -> None:
        """Give back the threads and connections of the store and the lease keeper."""
        self.runtime.close()

    def _end_draining(self) -> int:
        unfinished = self.runtime.unfinished()
        if unfinished:
            log.warning(
                "%d calls outlived the grace time; what is cut off now has an unknown outcome", unfinished
            )
        return unfinished

    def _begin_draining(self, grace: Duration | None) -> float:
        patience = self.grace if grace is None else _grace(grace)
        self.runtime.draining = True
        return time.monotonic() + patience


def _named(profile: "str | Profile | None") -> "Profile | None":
    if profile is None:
        return None
    from retrysafe import profiles  # most applications have no use for them

    return profile if isinstance(profile, profiles.Profile) else profiles.get(profile)


def _said_by(profile: "Profile | None", options: Options) -> Options:
    """What a profile and the environment say of what the code does not."""
    if profile is None:
        return {}
    # A variable that the code overrides is not read: a wrong value in it does no harm.
    read = {name: one for name, one in profile.environment.items() if one.option not in options}
    return profile._replace(environment=read).read(os.environ)


def _opened(url: str, profile: "Profile | None") -> Store:
    interval = None if profile is None else profile.read_cleanup_interval(os.environ)
    return stores.open(url) if interval is None else stores.open(url, cleanup_interval=interval)


def _grace(value: object) -> float:
    try:
        found = seconds(value)
    except ValueError as refusal:
        raise ConfigurationError(f"grace={refusal}") from None
    if found < 0:
        raise ConfigurationError(f"grace={value!r} must be a number of seconds, zero or more")
    return found


def _wait_threads(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigurationError(f"wait_threads={value!r} must be a whole number, zero or more")
    return value


def _check(store: object, on_event: object) -> None:
    if not isinstance(store, str) and not hasattr(type(store), "reserve"):
        raise ConfigurationError(
            f'store={store!r} is not a store: expected a URL such as "sqlite:///keys.db"'
        )
    if on_event is None:
        return
    from inspect import iscoroutinefunction  # half as long to import as all of this library

    if not callable(on_event) or iscoroutinefunction(on_event):
        raise ConfigurationError(
            f"on_event={on_event!r} must be a plain function of an event: it is called, and not awaited"
        )


def _as_secret(secret: str | bytes | None) -> Secret | None:
    if secret is None:
        return None
    if not isinstance(secret, str | bytes):
        raise ConfigurationError(f"secret is {type(secret).__name__}: expected text or bytes")
    if len(secret) < 16:
        raise ConfigurationError(
            f"secret has {len(secret)} characters: use at least 16, for example the output of "
            "python -c 'import secrets; print(secrets.token_hex())'"
        )
    return Secret(secret.encode() if isinstance(secret, str) else secret)
