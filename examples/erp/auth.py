"""Who works here: users log in with their tenant, and Flask-Login has them in a session.

Everything under `/api/v1` asks for it before a view is called, and so before a key is claimed or a response
replayed.
"""

from typing import Any, cast

from flask import Blueprint, abort
from flask.typing import ResponseReturnValue
from flask_login import LoginManager, current_user, login_user, logout_user  # type: ignore[import-untyped]  # it has no types
from sqlalchemy import select
from werkzeug.security import check_password_hash

from examples.erp import fields
from examples.erp.database import db
from examples.erp.models import Tenant, User

login_manager: Any = LoginManager()
auth = Blueprint("auth", __name__)


@login_manager.user_loader  # type: ignore[untyped-decorator]  # it has no types
def load_user(id: str) -> User | None:
    return db.session.get(User, int(id))


@auth.post("/login")
def log_in() -> ResponseReturnValue:
    named = select(User).join(User.tenant).where(Tenant.name == fields.text("tenant"))
    user = db.session.scalar(named.where(User.name == fields.text("user")))
    if user is None or not check_password_hash(user.password, fields.text("password")):
        abort(401, "there is no such user, or the password is another one")
    login_user(user)
    return "", 204


@auth.post("/logout")
def log_out() -> ResponseReturnValue:
    logout_user()
    return "", 204


def require_login() -> ResponseReturnValue | None:
    """401 for requests without a session, or with one that has expired."""
    return None if current_user.is_authenticated else login_manager.unauthorized()


def me() -> User:
    """The user who is logged in."""
    return cast("User", current_user)


def owner_of_key(_: object) -> dict[str, str | int] | None:
    """Whose key it is: a user's, within a tenant."""
    user = me()
    return {"tenant": user.tenant.name, "user": user.id} if user.is_authenticated else None
