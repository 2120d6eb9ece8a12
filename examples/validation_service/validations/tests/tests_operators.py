"""What operators and developers look at: the admin site, and the description of the API."""

from django.contrib import admin
from django.contrib.auth.models import User
from django.urls import reverse

from examples.validation_service.validations.models import ApiToken
from examples.validation_service.validations.tests.clients import ServiceTestCase


class Operators(ServiceTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.finished()

    def test_the_admin_site(self) -> None:
        """Each list can be opened; a token is not shown, and not made here."""
        self.client.force_login(User.objects.create_superuser("ada"))
        for model in admin.site._registry:
            name = f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist"
            with self.subTest(name):
                assert self.client.get(reverse(name)).status_code == 200
        assert self.client.get(reverse("admin:validations_apitoken_add")).status_code == 403
        token = ApiToken.objects.first()
        assert token is not None
        shown = self.client.get(reverse("admin:validations_apitoken_change", args=[token.pk]))
        assert token.digest not in shown.content.decode()

    def test_the_description(self) -> None:
        described = self.client.get("/api/schema/")
        assert described.status_code == 200
        assert b"Idempotency-Key" in described.content
