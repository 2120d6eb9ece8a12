"""The tables: see `stores/sql/<dialect>/migrations/0001_tables.sql`."""

from typing import ClassVar

from django.db import migrations, models

from retrysafe.django.fields import DigestField, MomentField
from retrysafe.django.migrations_of_store import Statements


class Migration(migrations.Migration):
    initial = True

    dependencies: ClassVar = []

    operations: ClassVar = [
        Statements(
            "tables",
            [
                migrations.CreateModel(
                    name="Record",
                    fields=[
                        ("id", DigestField(editable=False, primary_key=True, serialize=False)),
                        ("version", models.SmallIntegerField()),
                        ("token", DigestField()),
                        ("fingerprint", DigestField()),
                        ("state", models.TextField()),
                        ("mode", models.TextField()),
                        ("attempt", models.IntegerField()),
                        ("lease_until", MomentField(null=True)),
                        ("checkpointed", models.SmallIntegerField()),
                        ("door", models.TextField()),
                        ("scope", models.TextField()),
                        ("key", models.TextField(null=True)),
                        ("action", models.TextField()),
                        ("target", models.TextField()),
                        ("request_id", models.TextField()),
                        ("correlation_id", models.TextField(null=True)),
                        ("created_at", MomentField()),
                        ("updated_at", MomentField()),
                        ("completed_at", MomentField(null=True)),
                        ("expires_at", MomentField()),
                        ("held_until", MomentField()),
                        ("status", models.IntegerField(null=True)),
                        ("headers", models.TextField(null=True)),
                        ("body", models.BinaryField(null=True)),
                        ("omitted", models.SmallIntegerField()),
                    ],
                    options={
                        "db_table": "retrysafe_records",
                        "default_permissions": ("view",),
                        "permissions": [
                            ("view_bodies", "Can see stored bodies and keys in full, secrets included"),
                            ("release_record", "Can release records: the next call with such a key runs"),
                            ("resolve_record", "Can resolve abandoned records as done or failed"),
                        ],
                        "indexes": [
                            models.Index(fields=["expires_at"], name="retrysafe_records_expires_at"),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="AuditEntry",
                    fields=[
                        ("entry", models.BigAutoField(primary_key=True, serialize=False)),
                        ("at", MomentField()),
                        ("by", models.TextField()),
                        ("reason", models.TextField()),
                        ("act", models.TextField()),
                        ("outcome", models.TextField()),
                        ("record", DigestField(db_column="id", null=True)),
                        ("key", models.TextField(null=True)),
                        ("scope", models.TextField()),
                        ("action", models.TextField()),
                        ("target", models.TextField()),
                        ("request_id", models.TextField()),
                    ],
                    options={
                        "db_table": "retrysafe_audit",
                        "default_permissions": ("view",),
                        "verbose_name_plural": "audit entries",
                    },
                ),
                migrations.CreateModel(
                    name="Verdict",
                    fields=[
                        ("verdict", models.TextField(primary_key=True, serialize=False)),
                        ("count", models.BigIntegerField()),
                        ("since", MomentField()),
                    ],
                    options={"db_table": "retrysafe_verdicts", "default_permissions": ()},
                ),
            ],
        ),
    ]
