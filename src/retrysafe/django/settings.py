"""`settings.RETRYSAFE`, and the guard that it describes.

    RETRYSAFE = {
        "DATABASE": "default",          # or "STORE": the address of a store that is not Django's
        "ORGANISATION": "accounts.scopes.organisation_of",
        "EFFECTS": "database",
        "REQUIRED": "warn",
    }

Every option of a guard has its name in capital letters.  What can be wrong is said when the project starts,
by `manage.py check`.
"""

import difflib
from collections.abc import Mapping, Sequence
from threading import RLock
from typing import Any, Literal, cast

from django.conf import settings
from django.core.signals import setting_changed

from retrysafe import policy, profiles, stores
from retrysafe.django import scopes
from retrysafe.django.options import Options, of_engine
from retrysafe.errors import ConfigurationError
from retrysafe.guard import Guard
from retrysafe.policy import HOUR, Paths
from retrysafe.stores.contract import Store
from retrysafe.stores.sql.django import DjangoStore

NAME = "RETRYSAFE"
TTL_HOURS = "IDEMPOTENCY_KEY_TTL_HOURS"

_OF_STORE = ("DATABASE", "STORE", "DEADLINE", "CLEANUP_INTERVAL")
_OF_MIDDLEWARE = ("PATHS", "ROUTES")
_OF_GUARD = ("SECRET", "GRACE", "ON_EVENT", "WIRE", "PROFILE", "WAIT_THREADS")
_OF_CHECKS = ("UNPROTECTED", "EXEMPT")
KNOWN = frozenset(
    {
        *_OF_STORE,
        *_OF_MIDDLEWARE,
        *_OF_GUARD,
        *_OF_CHECKS,
        "ORGANISATION",
        *(name.upper() for name in Options.__annotations__),
    }
)


def read() -> dict[str, Any]:
    """What the project says; raises `ConfigurationError` for what it cannot say."""
    said: object = getattr(settings, NAME, None)
    if said is None:
        return {}
    if not isinstance(said, Mapping):
        raise ConfigurationError(
            f"settings.{NAME} is {type(said).__name__}: expected a dictionary, such as "
            '{"DATABASE": "default", "EFFECTS": "database"}'
        )
    found = {str(name): value for name, value in cast("Mapping[object, Any]", said).items()}
    for name in found:
        if name not in KNOWN:
            near = difflib.get_close_matches(name.upper(), KNOWN, 1)
            raise ConfigurationError(
                f"settings.{NAME} has {name!r}, which is not an option: "
                + (f"did you mean {near[0]!r}? " if near else "")
                + f"There are {', '.join(sorted(KNOWN))}"
            )
    for one, other in (("DATABASE", "STORE"), ("SCOPE", "ORGANISATION")):
        if found.get(one) is not None and found.get(other) is not None:
            raise ConfigurationError(
                f"settings.{NAME} has {one!r} and {other!r}, of which the second would be ignored: leave "
                "one out"
            )
    if found.get("ROUTES") and found.get("PATHS") is None:
        raise ConfigurationError(
            f"settings.{NAME} has 'ROUTES' and no 'PATHS': they say what single paths of these say "
            "differently. Name the paths that the middleware covers, or put @idempotent on views"
        )
    return found


def database(said: Mapping[str, Any] | None = None) -> str | None:
    """The alias of the database that the records are in; `None`: they are in another store."""
    said = read() if said is None else said
    if said.get("STORE") is not None:
        return None
    alias: object = said.get("DATABASE")
    if alias is None:
        from django.db import router

        from retrysafe.django.models import Record  # when the applications are loaded

        alias = router.db_for_write(Record)
    if alias not in settings.DATABASES:
        raise ConfigurationError(
            f"settings.{NAME}['DATABASE'] is {alias!r}, which is no alias in DATABASES: there are "
            f"{', '.join(sorted(settings.DATABASES))}"
        )
    return str(alias)


def _open_store(said: Mapping[str, Any]) -> Store:
    options: dict[str, Any] = {}
    for name in ("DEADLINE", "CLEANUP_INTERVAL"):
        if name in said:
            options[name.lower()] = said[name]
    store = said.get("STORE")
    if isinstance(store, str):
        return stores.open(store, **options)
    if store is not None:
        if options:
            names = ", ".join(repr(name.upper()) for name in options)
            raise ConfigurationError(
                f"settings.{NAME} has {names} beside a store that is made already, which they would not "
                "change: give them to the store where it is made"
            )
        return cast("Store", store)
    alias = database(said)
    assert alias is not None
    return DjangoStore(alias, **options)


def options_of(said: Mapping[str, Any]) -> policy.Options:
    """What it says of every view, in the guard's own words."""
    found = {name.lower(): value for name, value in said.items() if name.lower() in Options.__annotations__}
    organisation = said.get("ORGANISATION")
    if organisation is not None:
        found["scope"] = scopes.all_of(scopes.organisation(organisation), scopes.endpoint)
    return of_engine(found)


def _build(said: Mapping[str, Any], profile: str | None, store: Store | None) -> Guard:
    named = (
        profiles.get(profile or said["PROFILE"]) if profile or isinstance(said.get("PROFILE"), str) else None
    )
    of_guard = {name.lower(): said[name] for name in _OF_GUARD if name in said}
    if isinstance(path := of_guard.get("on_event"), str):
        of_guard["on_event"] = scopes.imported(f"{NAME}['ON_EVENT']", path)
    # A guard of another profile than the project's is for another door: only the profile's options hold.
    options: dict[str, Any] = {} if profile else dict(options_of(said))
    if profile:
        of_guard["profile"] = profile
        of_guard.pop("wire", None)
        # What is so of the project's database and its workers, whatever comes through the door.
        options |= {name: said[name.upper()] for name in ("effects", "lease") if name.upper() in said}
    else:
        options.setdefault("scope", scopes.user)
    if named is not None:
        for name, variable in named.environment.items():
            if variable.option in Options.__annotations__ and hasattr(settings, name):
                options[variable.option] = _converted(name, variable)
    elif not profile and hasattr(settings, TTL_HOURS):
        options["retention"] = _hours(getattr(settings, TTL_HOURS))
    if "scope" in options:
        options["scope"] = scopes.of_django(options["scope"])
    return Guard(store or _open_store(said), **of_guard, **options)


def _converted(name: str, variable: Any) -> object:  # noqa: ANN401 - a Variable of `profiles`
    value: object = getattr(settings, name)
    try:
        return variable.convert(str(value))
    except ValueError:
        raise ConfigurationError(f"settings.{name} is {value!r}: expected {variable.expected}") from None


def _hours(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ConfigurationError(
            f"settings.{TTL_HOURS} is {value!r}: expected a number of hours greater than zero"
        )
    return value * HOUR


# --- the guards of the project


class _Guards:
    """Those of one state of the settings."""

    def __init__(self, said: Mapping[str, Any], others: Sequence[object]) -> None:
        self.said = said
        self.others = others
        self.by_profile: dict[str | None, Guard] = {}
        self.store: Store | None = None
        """All of them have one, so that a process has no more connections than it needs."""


_READ = frozenset(
    {NAME, TTL_HOURS, *(name for profile in profiles.PROFILES.values() for name in profile.environment)}
)

_lock = RLock()
_known: list[_Guards] = []
_current: _Guards | None = None


def guard(profile: str | None = None) -> Guard:
    """The guard that `settings.RETRYSAFE` describes; or one of another profile, with the same store.

    `guard("job-callbacks")` is for receipts, beside views whose clients have keys.
    """
    global _current
    found = None if _current is None else _current.by_profile.get(profile)
    if found is None:
        with _lock:
            if _current is None:
                _current = _guards_now()
            found = _current.by_profile.get(profile)
            if found is None:
                found = _build(_current.said, profile, _current.store)
                _current.by_profile[profile] = found
                _current.store = found.store
    return found


def _guards_now() -> _Guards:
    """Those that were made of these settings before, when a test has overridden them and is over."""
    said, others = read(), [getattr(settings, name, None) for name in sorted(_READ)]
    for one in _known:
        # By their texts, too: `True` is equal to 1, and another setting.
        if (one.said, one.others) == (said, others) and repr((one.said, one.others)) == repr((said, others)):
            return one
    made = _Guards(said, others)
    _known.append(made)
    return made


def guards() -> list[Guard]:
    """Those that were made so far."""
    return [one for known in _known for one in known.by_profile.values()]


def close_guards() -> None:
    """Close connections and threads; what is used again opens new ones."""
    global _current
    with _lock:
        made = guards()
        _current = None
    for one in made:
        one.close()


def _changed(*, setting: str, **_: object) -> None:
    """A test overrides a setting, or is over."""
    if setting in _READ:
        close_guards()


def listen() -> None:
    """Have tests that override settings work."""
    setting_changed.connect(_changed, dispatch_uid="retrysafe")


Unprotected = Literal["error", "warn", "ignore"]


def unprotected() -> Unprotected | None:
    """What `manage.py check` makes of views without protection; `None`: the project does not say."""
    said: object = read().get("UNPROTECTED")
    if said not in (None, "error", "warn", "ignore"):
        raise ConfigurationError(
            f'settings.{NAME}[\'UNPROTECTED\'] is {said!r}: expected "error", "warn" or "ignore"'
        )
    return said


def exempt() -> Sequence[str]:
    """Routes that are meant to be unprotected, and whose views cannot say so."""
    said: object = read().get("EXEMPT") or ()
    if isinstance(said, str) or not isinstance(said, Sequence):
        raise ConfigurationError(
            f"settings.{NAME}['EXEMPT'] is {said!r}: expected a list of paths such as "
            '["/accounts/*", "POST /login/"]'
        )
    return [str(path) for path in cast("Sequence[object]", said)]


def open_for_operators(alias: str | None = None) -> tuple[Store, bool]:
    """The project's store for a command, and whether the command has to close it; by another alias, if given.

    It waits longer than a service: a person is more patient than a client, and a busy store may need it.
    """
    said = read()
    if alias is not None:
        if said.get("STORE") is not None:
            raise ConfigurationError(
                f"--database {alias} was given, and settings.{NAME}['STORE'] says where the records are: "
                "leave one of them out"
            )
        said["DATABASE"] = alias
    if isinstance(said.get("STORE"), str | None):
        return _open_store({**said, "DEADLINE": _FOR_OPERATORS}), True
    return _open_store(said), False


_FOR_OPERATORS = 5.0
"""Seconds, as the command line has."""


def covered() -> tuple[Paths | None, Mapping[str, Options]]:
    """What the middleware covers: `None`, and no routes, where views are decorated."""
    said = read()
    return said.get("PATHS"), said.get("ROUTES") or {}
