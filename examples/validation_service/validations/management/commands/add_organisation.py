"""`manage.py add_organisation north --quota 500`: a client, and a token for it."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand
from django.db import transaction

from examples.validation_service.validations.models import ApiToken, Organisation


class Command(BaseCommand):
    help = "Adds an organisation, or a token to one that exists, and prints the token: it is shown only once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name")
        parser.add_argument(
            "--quota", type=int, help="runs in a month; it is changed if the organisation exists"
        )
        parser.add_argument("--user", help="whose token it is; default: the name of the organisation")
        parser.add_argument("--read-only", action="store_true", help="a token that starts nothing")

    @transaction.atomic
    def handle(self, **given: Any) -> None:
        organisation, _ = Organisation.objects.get_or_create(name=given["name"])
        if given["quota"] is not None:
            Organisation.objects.filter(pk=organisation.pk).update(quota=given["quota"])
        user, _ = User.objects.get_or_create(username=given["user"] or given["name"])
        self.stdout.write(ApiToken.issue(organisation, user, read_only=given["read_only"]))
