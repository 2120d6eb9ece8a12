"""What the views of tests leave behind."""

from django.db import models


class Order(models.Model):
    label = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.label


class Line(models.Model):
    """Whose order is looked for when the transaction is committed, and not before."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE)


class Quota(models.Model):
    """How many runs an organisation has started."""

    organisation = models.CharField(max_length=100, unique=True)
    used = models.IntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.organisation}: {self.used}"
