"""`manage.py cleanup_callback_receipts`: remove expired receipts of callbacks."""

from typing import ClassVar

from retrysafe._core.model import Door
from retrysafe.django.management.cleaning import CleanupCommand


class Command(CleanupCommand):
    help = (
        "Remove receipts of callbacks that have expired, in batches between which deliveries proceed. They "
        "last for the retention of their receipts: CALLBACK_RECEIPT_TTL_DAYS, 30 days."
    )
    doors: ClassVar[tuple[Door, ...]] = ("callback",)
    noun = "expired receipt"
