"""`settings.RETRYSAFE`, and the guard that it describes.

    RETRYSAFE = {
        "DATABASE": "default",          # or "STORE": the address of a store that is not Django's
        "ORGANISATION": "accounts.scopes.organisation_of",
        "EFFECTS": "database",
        "REQUIRED": "warn",
    }

Every option of a guard has its name in capital letters.  What can be wrong is said when the project starts, by
`manage.py check`.
"""

import difflib
from collections.abc import Mapping
from threading import RLock
from typing import Any, cast

from django.conf import settings
from django.core.signals import setting_changed

from retrysafe import profiles, stores
from retrysafe.django import scopes
from retrysafe.errors import ConfigurationError
from retrysafe.guard import Guard
from retrysafe.policy import HOUR, Options, Paths
from retrysafe.stores.contract import Store
from retrysafe.stores.sql.django import DjangoStore

NAME = "RETRYSAFE"
TTL_HOURS = "IDEMPOTENCY_KEY_TTL_HOURS"

_OF_STORE = ("DATABASE", "STORE", "DEADLINE", "CLEANUP_INTERVAL")
_OF_MIDDLEWARE = ("PATHS", "ROUTES")
_OF_GUARD = ("SECRET", "GRACE", "ON_EVENT", "WIRE", "PROFILE", "WAIT_THREADS")
_FUNCTIONS = ("ON_EVENT", "REAUTHORISE")
"""May be dotted paths, as may be the scope."""

KNOWN = frozenset(
    {
        *_OF_STORE,
        *_OF_MIDDLEWARE,
        *_OF_GUARD,
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
                f"settings.{NAME} has {one!r} and {other!r}, of which the second would be ignored: leave one out"
            )
    return found


def database() -> str | None:
    """The alias of the database that the records are in; `None`: they are in another store."""
    said = read()
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
        return cast("Store", store)
    alias = database()
    assert alias is not None
    return DjangoStore(alias, **options)


def options_of(said: Mapping[str, Any]) -> Options:
    """What it says of every view, in the guard's own words."""
    found = {name.lower(): value for name, value in said.items() if name.lower() in Options.__annotations__}
    for name in _FUNCTIONS:
        if isinstance(path := found.get(name.lower()), str):
            found[name.lower()] = scopes.imported(f"{NAME}[{name!r}]", path)
    organisation = said.get("ORGANISATION")
    if organisation is not None:
        found["scope"] = scopes.all_of(scopes.organisation(organisation), scopes.endpoint)
    return cast("Options", found)


def _build(said: Mapping[str, Any], profile: str | None) -> Guard:
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
        if "EFFECTS" in said:
            options["effects"] = said["EFFECTS"]
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
    return Guard(_open_store(said), **of_guard, **options)


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

_lock = RLock()
_guards: dict[str | None, Guard] = {}


def guard(profile: str | None = None) -> Guard:
    """The guard that `settings.RETRYSAFE` describes; or one of another profile, with the same store.

    `guard("job-callbacks")` is for receipts, beside views whose clients have keys.
    """
    found = _guards.get(profile)
    if found is None:
        with _lock:
            found = _guards.get(profile)
            if found is None:
                _guards[profile] = found = _build(read(), profile)
    return found


def forget_guards() -> None:
    """Have the guards made anew from other settings."""
    with _lock:
        forgotten = list(_guards.values())
        _guards.clear()
    for one in forgotten:
        one.close()


_READ = frozenset(
    {NAME, "DATABASES", *(name for profile in profiles.PROFILES.values() for name in profile.environment)}
)


def _changed(*, setting: str, **_: object) -> None:
    if setting in _READ:
        forget_guards()


setting_changed.connect(_changed, dispatch_uid="retrysafe")


def covered() -> tuple[Paths | None, Mapping[str, Options]]:
    """What the middleware covers: `None` paths, and no routes, where views are decorated."""
    said = read()
    return said.get("PATHS"), said.get("ROUTES") or {}
