"""Where things are, by the environment."""

import os

DATABASE = os.environ.get("CONTROL_DATABASE", "sqlite:///workflows.sqlite")
"""DBOS's; for PostgreSQL `postgresql+psycopg://user:secret@localhost/workflows`."""

KEYS = os.environ.get("CONTROL_KEYS", "sqlite:///control-keys.db")
"""The records of request keys: any store, such as `postgresql://user:secret@localhost/keys` or
`redis://localhost:6379/0`, which `retrysafe arm` has armed."""

DELIVERIES = os.environ.get("CONTROL_DELIVERIES", "deliveries.sqlite")
LEASE = float(os.environ.get("CONTROL_LEASE", "30"))
SECRET = os.environ.get("CONTROL_SECRET", "change me in production, please")

_PAIRS = [pair.partition("=") for pair in os.environ.get("CONTROL_TOKENS", "").split(",") if "=" in pair]
TOKENS = {token: name for name, _, token in _PAIRS}
"""Callers by their tokens; written `ann=token,bob=token`."""
