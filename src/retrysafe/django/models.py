"""The store's tables as models: to be looked at, filtered and emptied by tests.

The tables are made by the numbered statements of the store, see `migrations`.  Records are written by the
store alone, and changed by operators through the admin site or `manage.py retrysafe`, which keep an audit.
"""

import json
from typing import TYPE_CHECKING, Any, ClassVar

from django.db import models

from retrysafe.django.fields import DigestField, MomentField

_Manager = models.Manager[Any] if TYPE_CHECKING else models.Manager


class OfStore(_Manager):
    """On the database that `RETRYSAFE["DATABASE"]` names."""

    def get_queryset(self) -> models.QuerySet[Any]:
        found = super().get_queryset()
        if self._db is not None:
            return found
        from retrysafe.django.settings import database  # which knows the models

        return found.using(database())


class Record(models.Model):
    """What is known of one key."""

    id = DigestField(primary_key=True, editable=False)
    version = models.SmallIntegerField()
    token = DigestField()
    fingerprint = DigestField()
    state = models.TextField()
    mode = models.TextField()
    attempt = models.IntegerField()
    lease_until = MomentField(null=True)
    checkpointed = models.SmallIntegerField()
    door = models.TextField()
    scope = models.TextField()
    key = models.TextField(null=True)
    action = models.TextField()
    target = models.TextField()
    request_id = models.TextField()
    correlation_id = models.TextField(null=True)
    created_at = MomentField()
    updated_at = MomentField()
    completed_at = MomentField(null=True)
    expires_at = MomentField()
    held_until = MomentField()
    status = models.IntegerField(null=True)
    headers = models.TextField(null=True)
    body = models.BinaryField(null=True)
    omitted = models.SmallIntegerField()
    details = models.TextField(db_default="[]")
    retention_from = models.TextField(db_default="creation")
    deliveries = models.IntegerField(db_default=1)
    seen_at = MomentField(null=True)
    delivery_times = models.TextField(null=True)
    payload = models.BinaryField(null=True)
    due_at = MomentField(null=True)

    objects: ClassVar[OfStore] = OfStore()

    class Meta:
        db_table = "retrysafe_records"
        indexes: ClassVar = [
            models.Index(fields=["expires_at"], name="retrysafe_records_expires_at"),
            models.Index(
                fields=["target"], name="retrysafe_records_subject", condition=~models.Q(door="request")
            ),
            models.Index(
                fields=["due_at"], name="retrysafe_records_due_at", condition=models.Q(due_at__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.id[:8]} {self.action} {self.target}"

    @property
    def scope_parts(self) -> dict[str, str]:
        """Whose key it is."""
        return {str(name): str(value) for name, value in json.loads(self.scope)}


class AuditEntry(models.Model):
    """What an operator did, and why."""

    entry = models.BigAutoField(primary_key=True)
    at = MomentField()
    by = models.TextField()
    reason = models.TextField()
    act = models.TextField()
    outcome = models.TextField()
    record = DigestField(null=True, db_column="id")
    key = models.TextField(null=True)
    scope = models.TextField()
    action = models.TextField()
    target = models.TextField()
    request_id = models.TextField()

    objects: ClassVar[OfStore] = OfStore()

    class Meta:
        db_table = "retrysafe_audit"
        verbose_name_plural = "audit entries"

    def __str__(self) -> str:
        return f"{self.act} by {self.by}"


class Verdict(models.Model):
    """How many calls ended how."""

    verdict = models.TextField(primary_key=True)
    count = models.BigIntegerField()
    since = MomentField()

    objects: ClassVar[OfStore] = OfStore()

    class Meta:
        db_table = "retrysafe_verdicts"

    def __str__(self) -> str:
        return f"{self.verdict}: {self.count}"


class RouteCount(models.Model):
    """How many calls of a route ended how."""

    pk = models.CompositePrimaryKey("door", "route", "source", "verdict")
    door = models.TextField()
    route = models.TextField()
    source = models.TextField()
    verdict = models.TextField()
    count = models.BigIntegerField()
    since = MomentField()
    seen_at = MomentField()

    objects: ClassVar[OfStore] = OfStore()

    class Meta:
        db_table = "retrysafe_routes"

    def __str__(self) -> str:
        return f"{self.route or self.door}, {self.verdict}: {self.count}"
