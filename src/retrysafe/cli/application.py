"""The application that a command is about: `shop.main:app`, found as servers find it.

What is named here is imported, and so run: it is the operator's own code, on the operator's own machine.
"""

import os
import sys
import traceback
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import redirect_stdout
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from retrysafe.cli.exits import Exit, Failure

if TYPE_CHECKING:
    from retrysafe.guard import Guard


class Kind(NamedTuple):
    """What a command wants to be named."""

    one: str
    several: str
    example: str

    @property
    def this(self) -> str:
        return f"the {self.one.removeprefix('an ')}"


_APPLICATION = Kind("an application", "applications", "app")
RECEIPTS = Kind("receipts", "receipts", "finished")


def load_application(name: str, *, factory: bool) -> object:
    """Import an application, or call the function that makes it."""
    from retrysafe.coverage.walk import is_application

    app = load(name, factory=factory)
    if is_application(app):
        return app
    raise Failure(*_not_an_application(app, name, factory=factory), Exit.USAGE)


def load(name: str, *, factory: bool, kind: Kind = _APPLICATION) -> object:
    """Import whatever is named, or call the function that makes it."""
    from retrysafe.coverage.walk import takes

    module, colon, attributes = name.partition(":")
    if not (colon and module and attributes) or "/" in module or module.endswith(".py"):
        raise Failure(
            f"{name!r} does not name {kind.one}",
            f"Write a module and a name in it, as servers take them: shop.main:{kind.example}.",
            Exit.USAGE,
        )
    # What it prints must not come between our lines, or into a JSON document.
    with redirect_stdout(sys.stderr):
        app = _attribute(_import(module), module, attributes, kind)
        if factory:
            if not takes(app, 0):
                raise Failure(
                    f"{name} cannot be called without arguments, so it is not a factory of {kind.several}",
                    "Name a function that takes none, such as one that calls it.",
                    Exit.USAGE,
                )
            app = _made(app, name)
    return app


def _import(module: str) -> object:
    # First, as with `python -m` and with servers: the application is where the command is given.
    if sys.path[:1] != [os.getcwd()]:
        sys.path.insert(0, os.getcwd())
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise Failure(
                f"there is no module {error.name}",
                f"{os.getcwd()} and the installed packages were searched: run the command where {module} can "
                "be imported.",
                Exit.USAGE,
            ) from None
        raise _failed(f"{module} cannot be imported", error) from error
    except (Exception, SystemExit) as error:
        raise _failed(f"{module} cannot be imported", error) from error


def _attribute(found: object, module: str, attributes: str, kind: Kind) -> object:
    for name in attributes.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise Failure(
                f"{module} has no attribute {attributes}",
                f"Write the name of {kind.this} in {module}: {module}:{kind.example}.",
                Exit.USAGE,
            ) from None
    return found


def _made(factory: object, name: str) -> object:
    assert callable(factory), "it takes no arguments"
    try:
        made: object = factory()
        _close(made)
        return made
    except (Exception, SystemExit) as error:
        raise _failed(f"{name} failed", error) from error


def _close(made: object) -> None:
    """What an `async def` returns will never be awaited, and Python would warn of it."""
    if isinstance(made, Coroutine):
        made.close()


def _failed(what: str, error: BaseException) -> Failure:
    """With the place in the operator's own code, if it got there: the last one in the current directory."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    own = [frame for frame in frames if frame.filename.startswith(os.getcwd() + os.sep)] or frames
    # A syntax error says where it is itself.
    known = own and not isinstance(error, SyntaxError) and not own[-1].filename.startswith("<frozen ")
    where = f" ({own[-1].filename}, line {own[-1].lineno})" if known else ""
    text = f": {error}" if str(error) else ""
    return Failure(f"{what}: {type(error).__name__}{text}{where}", exit=Exit.USAGE)


def _not_an_application(app: object, name: str, *, factory: bool) -> tuple[str, str]:
    from retrysafe.coverage.walk import takes

    kind = f"{type(app).__module__}.{type(app).__qualname__}".removeprefix("builtins.")
    if factory:
        return f"{name} returned a {kind}, which is not an application", "Name a function that returns one."
    if callable(app) and not isinstance(app, type) and takes(app, 0):
        return f"{name} is a {kind}, which is not an application", "If it makes one, add --factory."
    return (
        f"{name} is a {kind}, which is not an application",
        "Expected one of FastAPI's, Starlette's, Flask's or Django's, or what ASGI or WSGI servers can call.",
    )


def guard_names(guards: "Iterable[Guard]") -> dict[int, str]:
    """What the application calls its guards: the first variable of a module that each of them is found in."""
    numbered = {id(guard): f"guard-{number}" for number, guard in enumerate(guards, 1)}
    named = _of_django(numbered)
    for module_name, module in list(sys.modules.items()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in numbered:
                named.setdefault(id(value), f"{module_name}.{name}")
    return numbered | named


def _of_django(numbered: Mapping[int, str]) -> dict[int, str]:
    """The guard of a Django project, which is in no variable."""
    settings: Any = sys.modules.get("retrysafe.django.settings")
    made: Iterable[Guard] = () if settings is None else settings.guards()
    return {id(guard): "settings.RETRYSAFE" for guard in made if id(guard) in numbered}
