"""The application: its configuration, its extensions, and an area per blueprint."""

import os
from pathlib import Path

from flask import Blueprint, Flask
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException

from examples.erp.auth import auth, login_manager, owner_of_key, require_login
from examples.erp.database import db, retrysafe
from examples.erp.orders import orders
from examples.erp.payments import payments
from examples.erp.pos import pos
from examples.erp.stock import stock


def create_app() -> Flask:
    # Flask-SQLAlchemy looks for a relative SQLite file in the instance's folder: here, where you are.
    app = Flask(__name__, instance_path=str(Path.cwd()))
    secret = os.environ.get("ERP_SECRET", "which all readers of this file know")
    app.config.from_mapping(
        SECRET_KEY=secret,
        # For PostgreSQL: postgresql+psycopg://erp:secret@localhost/erp
        # For MariaDB and MySQL: mysql+pymysql://erp:secret@localhost/erp
        SQLALCHEMY_DATABASE_URI=os.environ.get("ERP_DATABASE", "sqlite:///erp.db"),
        CARD_PROVIDER=os.environ.get("ERP_PROVIDER", "http://127.0.0.1:9000"),
        RETRYSAFE_PROFILE="erp",
        RETRYSAFE_SCOPE=owner_of_key,
        RETRYSAFE_EFFECTS="database",
        # Goes into the keys that the card provider gets: see `derive` in `payments.py`.
        RETRYSAFE_SECRET=secret,
        # How long a retry waits for a worker that was killed.  Renewed while a view runs.
        RETRYSAFE_LEASE=float(os.environ.get("ERP_LEASE", "30")),
    )
    db.init_app(app)
    login_manager.init_app(app)
    retrysafe.init_app(app)

    api = Blueprint("api", __name__, url_prefix="/api/v1")
    api.before_request(require_login)
    for area in (pos, payments, orders, stock):
        api.register_blueprint(area)
    app.register_blueprint(auth)
    app.register_blueprint(api)
    app.register_error_handler(HTTPException, show_error)
    return app


def show_error(error: HTTPException) -> ResponseReturnValue:
    return {"error": error.description}, error.code or 500
