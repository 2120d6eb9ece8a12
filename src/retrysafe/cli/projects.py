"""The project that the commands are about, where a framework runs them: `python manage.py retrysafe ls`.

It says where the records are, so there is no `--store`, and advice names commands as they are called there.
"""

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

from retrysafe.stores.contract import Store

if TYPE_CHECKING:
    from retrysafe._http.routes import Published
    from retrysafe.coverage import Coverage

_OWN = "retrysafe"


class Project(NamedTuple):
    name: str
    """What its routes are in."""
    program: str
    """How the command line is called there."""
    open_store: Callable[[], tuple[Store, bool]]
    """Its store, and whether it is to be closed afterwards."""
    migrates: bool
    """Its framework applies the migrations of the tables."""
    examine: "Callable[[], Coverage]"
    published: "Callable[[], Published]"


_current: ContextVar[Project | None] = ContextVar("retrysafe_project", default=None)


@contextmanager
def within(project: Project) -> Generator[None]:
    """Have commands be about a project."""
    before = _current.set(project)
    try:
        yield
    finally:
        _current.reset(before)


def current() -> Project | None:
    return _current.get()


def program() -> str:
    project = _current.get()
    return _OWN if project is None else project.program


_COMMAND = re.compile(
    r"\bretrysafe (?=(?:ls|show|stats|release|resolve|redrive|work|audit|purge|export|doctor|routes|skill)\b)"
)


def as_called(text: str) -> str:
    """A text with its commands as they are called here."""
    project = _current.get()
    return text if project is None else _COMMAND.sub(f"{project.program} ", text)
