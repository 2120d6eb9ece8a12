"""Flask-SQLAlchemy, whose `db.session` joins the transactions of guarded calls.

One `db` may serve several applications, as where tests build one after the other, and each has its own guard.
"""

from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from flask import Flask, current_app
from sqlalchemy import orm

from retrysafe.guard import Guard
from retrysafe.sqlalchemy.sessions import sessionmaker

if TYPE_CHECKING:
    from flask_sqlalchemy import SQLAlchemy


def join_sessions(db: "SQLAlchemy", app: Flask, guard: Guard) -> None:
    """Have the sessions of an application join the transactions of guarded calls."""
    session: Any = db.session
    factory: object = session.session_factory
    if not isinstance(factory, SessionFactory):
        session.session_factory = session.registry.createfunc = factory = SessionFactory(factory)
    options = {name: value for name, value in factory.kw.items() if name != "bind"}
    factory.joining[app] = sessionmaker(guard, class_=factory.class_, **options)


class SessionFactory(orm.sessionmaker[Any]):
    """Makes the sessions of each application that `db` serves.

    A sessionmaker, because `event.listen(db.session, ...)` asks for one: of the class of them all.
    """

    def __init__(self, ordinary: Any) -> None:  # noqa: ANN401 - a sessionmaker of whichever class
        self._ordinary = ordinary
        self.kw = ordinary.kw
        self.class_ = ordinary.class_
        self.joining: WeakKeyDictionary[Flask, Any] = WeakKeyDictionary()

    def __call__(self, **options: Any) -> Any:  # noqa: ANN401 - a session of that class
        app = cast("Any", current_app)._get_current_object()
        return self.joining.get(app, self._ordinary)(**options)

    def configure(self, **options: Any) -> None:
        for factory in (self._ordinary, *self.joining.values()):
            factory.configure(**options)
