"""The application: `INSTALLED_APPS = [..., "retrysafe.django"]`."""

from django.apps import AppConfig


class RetrysafeConfig(AppConfig):
    name = "retrysafe.django"
    label = "retrysafe"
    verbose_name = "Idempotency"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from retrysafe.django import checks, settings
        from retrysafe.django.guarded import transaction

        checks.register_all()
        settings.listen()
        transaction.register()
