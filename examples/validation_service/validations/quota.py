"""Runs are counted against the quota of a month, in the transaction that makes them."""

from datetime import date, datetime, timedelta

from django.db.models import F
from django.utils import timezone
from rest_framework.exceptions import Throttled

from examples.validation_service.validations.models import Organisation, Usage


class QuotaUsedUp(Throttled):
    """429, which says when the next month begins.

    The library does not store a 429: nothing has happened, and the same key works when there is quota again.
    """

    default_detail = "the quota of this month is used up"
    extra_detail_singular = extra_detail_plural = ""

    def __init__(self) -> None:
        now = timezone.now()
        super().__init__(wait=(next_month(now) - now).total_seconds())


def count_run(organisation: Organisation) -> None:
    """Count one run, if there is quota left for it."""
    usage, _ = Usage.objects.get_or_create(organisation=organisation, month=this_month())
    # Compared and counted by one statement: another run may be counted at the same moment.
    counted = Usage.objects.filter(pk=usage.pk, runs__lt=organisation.quota).update(runs=F("runs") + 1)
    if not counted:
        raise QuotaUsedUp
    Organisation.objects.filter(pk=organisation.pk).update(runs=F("runs") + 1)


def used(organisation: Organisation) -> int:
    """How many runs have been started this month."""
    found = Usage.objects.filter(organisation=organisation, month=this_month()).first()
    return 0 if found is None else found.runs


def this_month() -> date:
    return timezone.now().date().replace(day=1)


def next_month(now: datetime) -> datetime:
    first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return (first + timedelta(days=32)).replace(day=1)
