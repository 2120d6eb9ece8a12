from django.apps import AppConfig


class Validations(AppConfig):
    name = "examples.validation_service.validations"
    label = "validations"

    def ready(self) -> None:
        # It is known to drf-spectacular by being defined.
        from examples.validation_service.validations import schema as schema
