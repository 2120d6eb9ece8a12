"""Payloads of callbacks, and from when on a worker may handle them."""

from typing import ClassVar

from django.db import migrations, models

from retrysafe.django.fields import MomentField
from retrysafe.django.migrations_of_store import Statements


class Migration(migrations.Migration):
    dependencies: ClassVar = [("retrysafe", "0003_batch")]

    operations: ClassVar = [
        Statements(
            "payloads",
            [
                migrations.AddField("record", "payload", models.BinaryField(null=True)),
                migrations.AddField("record", "due_at", MomentField(null=True)),
                migrations.AddIndex(
                    "record",
                    models.Index(
                        fields=["due_at"],
                        name="retrysafe_records_due_at",
                        condition=models.Q(due_at__isnull=False),
                    ),
                ),
            ],
        ),
    ]
