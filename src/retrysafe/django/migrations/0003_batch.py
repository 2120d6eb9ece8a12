"""PostgreSQL's function for a batch of operations."""

from typing import ClassVar

from django.db import migrations

from retrysafe.django.migrations_of_store import Statements


class Migration(migrations.Migration):
    dependencies: ClassVar = [("retrysafe", "0002_details_and_deliveries")]

    operations: ClassVar = [Statements("batch")]
