"""What all areas share: the database, and the guard whose records are in it."""

from flask_sqlalchemy import SQLAlchemy

from examples.erp.models import Base
from retrysafe.flask import Retrysafe

db = SQLAlchemy(metadata=Base.metadata)

# Without a guard: each application that is made has its own, by its configuration (`app.py`).  With `db`,
# what a view writes by `db.session` and its response are committed together.
retrysafe = Retrysafe(db=db)
