"""What the service, its jobs and its runner share, by the environment.  `settings.py` is Django's."""

import os
from pathlib import Path

FILES = Path(os.environ.get("VALIDATION_FILES", "validation-files")).resolve()
JOBS = FILES / "jobs"
"""A folder for each job, with its result and what it has still to deliver."""
SPOOL = FILES / "spool"
"""Envelopes that the runner is to pick up."""

CALLBACK_URL = os.environ.get("VALIDATION_CALLBACK_URL", "http://127.0.0.1:8000/api/callbacks/")
"""This service, as its jobs reach it."""

CALLBACK_IDS = os.environ.get("VALIDATION_CALLBACK_IDS", "yes") != "no"
"""Whether envelopes have callback ids.  Without them there are no receipts: the storm shows what for."""

LEASE = float(os.environ.get("VALIDATION_LEASE", "30"))
"""Seconds until a retry takes over from a worker that was killed.  Renewed while a view runs."""

LAUNCH_EVERY = float(os.environ.get("VALIDATION_LAUNCH_EVERY", "5"))
"""Seconds until a worker looks by itself for jobs that are missing, and until a failed one starts again."""

LONGEST_PAUSE = float(os.environ.get("VALIDATION_LONGEST_PAUSE", "300"))
"""Seconds between two attempts of a job to deliver its callback: 300 is what the library has by default."""

ORGANISATIONS = ("north", "south")
"""Clients that `python -m examples.validation_service` makes, so that there is something to look at."""

WORKFLOW = "meter readings"
"""What each of them has: both checks."""


def demo_token(organisation: str) -> str:
    """Known to the storm and the README.  Those of real clients are random: `manage.py add_organisation`."""
    return f"{organisation}-demo-token"
