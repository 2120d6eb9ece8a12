"""What callbacks and operations say of a record besides, and how often it was asked for."""

from typing import ClassVar

from django.db import migrations, models

from retrysafe.django.fields import MomentField
from retrysafe.django.migrations_of_store import Statements


class Migration(migrations.Migration):
    dependencies: ClassVar = [("retrysafe", "0001_tables")]

    operations: ClassVar = [
        Statements(
            "details and deliveries",
            [
                migrations.AddField("record", "details", models.TextField(db_default="[]")),
                migrations.AddField("record", "retention_from", models.TextField(db_default="creation")),
                migrations.AddField("record", "deliveries", models.IntegerField(db_default=1)),
                migrations.AddField("record", "seen_at", MomentField(null=True)),
                migrations.AddField("record", "delivery_times", models.TextField(null=True)),
                migrations.AddIndex(
                    "record",
                    models.Index(
                        fields=["target"],
                        name="retrysafe_records_subject",
                        condition=~models.Q(door="request"),
                    ),
                ),
            ],
        ),
    ]
