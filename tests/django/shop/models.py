"""What the views of tests leave behind."""

from typing import TYPE_CHECKING

from django.db import models

if TYPE_CHECKING:  # checkers do not know what Django's fields hold
    Number = models.Field[int, int]
    Text = models.Field[str, str]


class Order(models.Model):
    label: "Text" = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.label


class Line(models.Model):
    """Whose order is looked for when the transaction is committed, and not before."""

    order: "models.ForeignKey[Order, Order]" = models.ForeignKey(Order, on_delete=models.CASCADE)


class Quota(models.Model):
    """How many runs an organisation has started."""

    organisation: "Text" = models.CharField(max_length=100, unique=True)
    used: "Number" = models.IntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.organisation}: {self.used}"


class Run(models.Model):
    """What jobs call back about."""

    id: "Text" = models.CharField(primary_key=True, max_length=100)
    status: "Text" = models.CharField(max_length=50, default="running")
    findings: "Number" = models.IntegerField(default=0)

    def __str__(self) -> str:
        return self.id


class Finding(models.Model):
    run: "models.ForeignKey[Run, Run]" = models.ForeignKey(Run, on_delete=models.CASCADE)
    message: "Text" = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.message
