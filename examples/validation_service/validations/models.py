"""What the service stores: organisations with their tokens and counts, workflows, runs, executions, findings.

No constraint makes a run or a finding unique.  That a request makes one run, and a callback its findings
once, is the library's doing; what is too many is there for the audit to count.
"""

import hashlib
import secrets
import uuid
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from django.conf import settings
from django.db import models

if TYPE_CHECKING:
    from django.contrib.auth.models import User


class Organisation(models.Model):
    """A client, with the summary counts of all its runs."""

    name: "models.CharField[str, str]" = models.CharField(max_length=100, unique=True)
    quota: "models.PositiveIntegerField[int, int]" = models.PositiveIntegerField(
        default=1000, help_text="How many runs it may start in a month."
    )
    runs: "models.PositiveIntegerField[Any, int]" = models.PositiveIntegerField(default=0)
    finished: "models.PositiveIntegerField[Any, int]" = models.PositiveIntegerField(default=0)
    errors: "models.PositiveIntegerField[Any, int]" = models.PositiveIntegerField(default=0)
    warnings: "models.PositiveIntegerField[Any, int]" = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return self.name


class Usage(models.Model):
    """How much of its quota an organisation has used, by month: what it is billed for."""

    organisation: "models.ForeignKey[Organisation, Organisation]" = models.ForeignKey(
        Organisation, on_delete=models.CASCADE, related_name="usage"
    )
    month: "models.DateField[date, date]" = models.DateField(help_text="Its first day.")
    runs: "models.PositiveIntegerField[Any, int]" = models.PositiveIntegerField(default=0)

    class Meta:
        verbose_name_plural = "usage"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["organisation", "month"], name="usage_of_a_month")
        ]

    def __str__(self) -> str:
        return f"{self.organisation}, {self.month:%Y-%m}: {self.runs}"


class ApiToken(models.Model):
    """What a client shows: `Authorization: Bearer …`.  Only its digest is stored."""

    organisation: "models.ForeignKey[Organisation, Organisation]" = models.ForeignKey(
        Organisation, on_delete=models.CASCADE, related_name="tokens"
    )
    user: "models.ForeignKey[User, User]" = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+"
    )
    # Tokens are random and long, so nothing is gained by salt or by a slow function.
    digest: "models.CharField[str, str]" = models.CharField(max_length=64, unique=True, editable=False)
    read_only: "models.BooleanField[bool, bool]" = models.BooleanField(default=False)
    revoked_at: "models.DateTimeField[datetime | None, datetime | None]" = models.DateTimeField(
        null=True, blank=True
    )

    organisation_id: int

    def __str__(self) -> str:
        return f"{self.user} of {self.organisation}"

    @staticmethod
    def digest_of(token: str) -> str:
        return hashlib.sha256(token.encode()).hexdigest()

    @classmethod
    def issue(
        cls, organisation: Organisation, user: "User", *, token: str | None = None, read_only: bool = False
    ) -> str:
        """A new token, which is not stored: it is shown once."""
        token = token or secrets.token_urlsafe(32)
        cls.objects.create(
            organisation=organisation, user=user, digest=cls.digest_of(token), read_only=read_only
        )
        return token


class Workflow(models.Model):
    """Which checks readings go through."""

    organisation: "models.ForeignKey[Organisation, Organisation]" = models.ForeignKey(
        Organisation, on_delete=models.CASCADE, related_name="workflows"
    )
    name: "models.CharField[str, str]" = models.CharField(max_length=200)
    checks: "models.JSONField[list[str], list[str]]" = models.JSONField()

    def __str__(self) -> str:
        return self.name


class Run(models.Model):
    """Readings that a client wants validated, by all checks of a workflow."""

    class Status(models.TextChoices):
        RUNNING = "running"
        PASSED = "passed"
        FAILED = "failed"
        CANCELLED = "cancelled"

    id: "models.UUIDField[uuid.UUID, uuid.UUID]" = models.UUIDField(
        primary_key=True, default=uuid.uuid4, editable=False
    )
    organisation: "models.ForeignKey[Organisation, Organisation]" = models.ForeignKey(
        Organisation, on_delete=models.CASCADE, related_name="+"
    )
    workflow: "models.ForeignKey[Workflow, Workflow]" = models.ForeignKey(
        Workflow, on_delete=models.CASCADE, related_name="runs"
    )
    started_by: "models.ForeignKey[User | None, User | None]" = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    started_at: "models.DateTimeField[datetime, datetime]" = models.DateTimeField(auto_now_add=True)
    name: "models.CharField[str, str]" = models.CharField(
        max_length=200, help_text="The client's own, for what it wants to happen once."
    )
    readings: "models.JSONField[list[float | None], list[float | None]]" = models.JSONField()
    status: "models.CharField[str, str]" = models.CharField(
        max_length=20, choices=Status.choices, default=Status.RUNNING
    )
    awaited: "models.IntegerField[Any, int]" = models.IntegerField(
        help_text="How many checks have still to call back."
    )
    errors: "models.PositiveIntegerField[Any, int]" = models.PositiveIntegerField(default=0)
    warnings: "models.PositiveIntegerField[Any, int]" = models.PositiveIntegerField(default=0)

    organisation_id: int

    def __str__(self) -> str:
        return self.name


class Execution(models.Model):
    """One check of a run, as a job.  Written with the run, so that its launch is not lost with a process."""

    run: "models.ForeignKey[Run, Run]" = models.ForeignKey(
        Run, on_delete=models.CASCADE, related_name="executions"
    )
    check_name: "models.CharField[str, str]" = models.CharField(max_length=20)
    # What the job is given, the same at each launch: so its callback has the same id, too.
    envelope: "models.TextField[str, str]" = models.TextField()
    # Until then there has to be a job for it.
    finished: "models.BooleanField[bool, bool]" = models.BooleanField(
        default=False, db_index=True, help_text="Whether it has called back."
    )

    run_id: uuid.UUID

    def __str__(self) -> str:
        return f"{self.run}, {self.check_name}"


class Finding(models.Model):
    """What a check has to say about one reading."""

    run: "models.ForeignKey[Run, Run]" = models.ForeignKey(
        Run, on_delete=models.CASCADE, related_name="findings"
    )
    check_name: "models.CharField[str, str]" = models.CharField(max_length=20)
    position: "models.PositiveIntegerField[int, int]" = models.PositiveIntegerField(
        help_text="Of the reading, counted from 0."
    )
    rule: "models.CharField[str, str]" = models.CharField(max_length=40)
    severity: "models.CharField[str, str]" = models.CharField(max_length=20)

    run_id: uuid.UUID

    class Meta:
        ordering: ClassVar = ["check_name", "position"]

    def __str__(self) -> str:
        return f"{self.run}, {self.check_name}: {self.rule} at {self.position}"
