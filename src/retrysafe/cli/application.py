"""Loads what an operator names as servers do: `module:attribute`."""

import os
import sys
from contextlib import redirect_stdout
from importlib import import_module

from retrysafe.cli.exits import Exit, Failure

_EXPECTED = "Write module:attribute, as for a server: myapp:app, or shop.main:app."


def load(target: str, *, factory: bool = False) -> object:
    """The object that is named; with `factory`, what it returns.  Modules in the current folder are found.

    What an application prints meanwhile goes to stderr: stdout is for what was asked.
    """
    name, _, path = target.partition(":")
    if not all(part.isidentifier() for part in (*name.split("."), *path.split("."))):
        raise Failure(f"{target!r} does not name an application", _EXPECTED, Exit.USAGE)
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    with redirect_stdout(sys.stderr):
        found = _imported(name)
        for attribute in path.split("."):
            try:
                found = getattr(found, attribute)
            except AttributeError:
                raise Failure(f"the module {name} has no {path}", _EXPECTED, Exit.USAGE) from None
        return _called(found, target) if factory else found


def _imported(name: str) -> object:
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{name}.".startswith(f"{missing.name}."):
            raise _not_importable(name, missing) from None
        raise Failure(
            f"there is no module {missing.name}",
            f"Modules are looked for in {os.getcwd()} and in this Python's packages. {_EXPECTED}",
            Exit.USAGE,
        ) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the application's own
        raise _not_importable(name, error) from None


def _not_importable(name: str, error: BaseException) -> Failure:
    return Failure(
        f"the module {name} cannot be imported: {type(error).__name__}: {error}",
        f"Run python -c 'import {name}' in the same folder to see where.",
        Exit.USAGE,
    )


def _called(found: object, target: str) -> object:
    if not callable(found):
        raise Failure(f"{target} is not a factory, but {found!r}", "Leave out --factory.", Exit.USAGE)
    try:
        return found()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the application's own
        raise Failure(
            f"the factory {target} failed: {type(error).__name__}: {error}",
            "A factory is called without arguments, and returns the application.",
            Exit.USAGE,
        ) from None
