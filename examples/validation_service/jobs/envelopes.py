"""What the service hands to a job, and what the job sends back."""

from enum import StrEnum
from pathlib import Path

from examples.validation_service.jobs.checks import Check
from retrysafe.callbacks.jobs import Callback, Envelope

SOURCE = "validation jobs"
"""Whose callback ids they are, in receipts."""


class Status(StrEnum):
    PASSED = "passed"
    FAILED = "failed"


class CheckEnvelope(Envelope, frozen=True):
    check: Check
    readings: list[float | None]
    folder: Path
    """Of this job alone: where its result goes, and its callback until it is acknowledged."""


class CheckCallback(Callback, frozen=True):
    check: Check
    status: Status
