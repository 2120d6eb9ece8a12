"""The store's tables as models: to be looked at, filtered and emptied by tests.

The tables are made by the numbered statements of the store, see `migrations`.  Records are written by the
store alone, and changed by operators through the admin site or `manage.py retrysafe`, which keep an audit.
"""

import json
from typing import TYPE_CHECKING, Any, ClassVar

from django.core.checks import CheckMessage
from django.db import models

from retrysafe.django.fields import DigestField, MomentField

if TYPE_CHECKING:  # checkers do not know what Django's fields hold
    _Manager = models.Manager[Any]
    Number = models.Field[int, int]
    NumberOrNone = models.Field[int | None, int | None]
    Text = models.Field[str, str]
    TextOrNone = models.Field[str | None, str | None]
    BytesOrNone = models.Field[bytes | None, bytes | None]
else:
    _Manager = models.Manager


_LONGEST = 100


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
    version: "Number" = models.SmallIntegerField()
    token = DigestField()
    fingerprint = DigestField()
    state: "Text" = models.TextField()
    mode: "Text" = models.TextField()
    attempt: "Number" = models.IntegerField()
    lease_until = MomentField(null=True)
    checkpointed: "Number" = models.SmallIntegerField()
    door: "Text" = models.TextField()
    scope: "Text" = models.TextField()
    key: "TextOrNone" = models.TextField(null=True)
    action: "Text" = models.TextField()
    target: "Text" = models.TextField()
    request_id: "Text" = models.TextField()
    correlation_id: "TextOrNone" = models.TextField(null=True)
    created_at = MomentField()
    updated_at = MomentField()
    completed_at = MomentField(null=True)
    expires_at = MomentField()
    held_until = MomentField()
    status: "NumberOrNone" = models.IntegerField(null=True)
    headers: "TextOrNone" = models.TextField(null=True)
    body: "BytesOrNone" = models.BinaryField(null=True)
    omitted: "Number" = models.SmallIntegerField()
    details: "Text" = models.TextField(db_default="[]")
    retention_from: "Text" = models.TextField(db_default="creation")
    deliveries: "Number" = models.IntegerField(db_default=1)
    seen_at = MomentField(null=True)
    delivery_times: "TextOrNone" = models.TextField(null=True)
    payload: "BytesOrNone" = models.BinaryField(null=True)
    due_at = MomentField(null=True)

    objects: ClassVar[OfStore] = OfStore()

    class Meta:
        db_table = "retrysafe_records"
        default_permissions = ("view",)
        permissions: ClassVar = [
            ("view_bodies", "Can see stored bodies and keys in full, secrets included"),
            ("release_record", "Can release records: the next call with such a key runs"),
            ("resolve_record", "Can resolve abandoned records as done or failed"),
        ]
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
        return _shown(f"{self.id[:8]} {self.action} {self.target}")

    @classmethod
    def check(cls, **kwargs: Any) -> list[CheckMessage]:
        """Without what Django says of conditions of indexes on MySQL: our statements make them."""
        return [message for message in super().check(**kwargs) if message.id != "models.W037"]

    @property
    def scope_parts(self) -> dict[str, str]:
        """Whose key it is."""
        return {str(name): str(value) for name, value in json.loads(self.scope)}


class AuditEntry(models.Model):
    """What an operator did, and why."""

    entry: "Number" = models.BigAutoField(primary_key=True)
    at = MomentField()
    by: "Text" = models.TextField()
    reason: "Text" = models.TextField()
    act: "Text" = models.TextField()
    outcome: "Text" = models.TextField()
    record = DigestField(null=True, db_column="id")
    key: "TextOrNone" = models.TextField(null=True)
    scope: "Text" = models.TextField()
    action: "Text" = models.TextField()
    target: "Text" = models.TextField()
    request_id: "Text" = models.TextField()

    objects: ClassVar[OfStore] = OfStore()

    class Meta:
        db_table = "retrysafe_audit"
        default_permissions = ("view",)
        verbose_name_plural = "audit entries"

    def __str__(self) -> str:
        return _shown(f"{self.act} by {self.by}")


def _shown(text: str) -> str:
    """In one short line, and printable: a client can put anything into a path."""
    from retrysafe.cli.format import clean

    return clean(text[:_LONGEST])


class Verdict(models.Model):
    """How many calls ended how."""

    verdict: "Text" = models.TextField(primary_key=True)
    count: "Number" = models.BigIntegerField()
    since = MomentField()

    objects: ClassVar[OfStore] = OfStore()

    class Meta:
        db_table = "retrysafe_verdicts"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.verdict}: {self.count}"


class RouteCount(models.Model):
    """How many calls of a route ended how."""

    pk = models.CompositePrimaryKey("door", "route", "source", "verdict")
    door: "Text" = models.TextField()
    route: "Text" = models.TextField()
    source: "Text" = models.TextField()
    verdict: "Text" = models.TextField()
    count: "Number" = models.BigIntegerField()
    since = MomentField()
    seen_at = MomentField()

    objects: ClassVar[OfStore] = OfStore()

    class Meta:
        db_table = "retrysafe_routes"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.route or self.door}, {self.verdict}: {self.count}"
