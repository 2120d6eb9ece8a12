"""`manage.py cleanup_idempotency_keys`: remove expired records of requests and operations."""

from typing import ClassVar

from retrysafe._core.model import Door
from retrysafe.django.management.cleaning import CleanupCommand


class Command(CleanupCommand):
    help = "Remove idempotency keys that have expired, in batches between which requests proceed."
    doors: ClassVar[tuple[Door, ...]] = ("request", "operation")
    noun = "expired key"
