"""How many calls of which route ended how."""

from typing import ClassVar

from django.db import migrations, models

from retrysafe.django.fields import MomentField
from retrysafe.django.migrations_of_store import Statements


class Migration(migrations.Migration):
    dependencies: ClassVar = [("retrysafe", "0004_payloads")]

    operations: ClassVar = [
        Statements(
            "routes",
            [
                migrations.CreateModel(
                    name="RouteCount",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "door",
                                "route",
                                "source",
                                "verdict",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("door", models.TextField()),
                        ("route", models.TextField()),
                        ("source", models.TextField()),
                        ("verdict", models.TextField()),
                        ("count", models.BigIntegerField()),
                        ("since", MomentField()),
                        ("seen_at", MomentField()),
                    ],
                    options={"db_table": "retrysafe_routes", "default_permissions": ()},
                ),
            ],
        ),
    ]
