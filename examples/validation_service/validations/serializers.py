"""What clients send, and what they are sent."""

from typing import Any

from rest_framework import serializers

from examples.validation_service.jobs.checks import Check
from examples.validation_service.validations import quota
from examples.validation_service.validations.models import Finding, Organisation, Run, Workflow

CHECKS = [(check.value, check.value) for check in Check]


def every_check() -> list[str]:
    return [check.value for check in Check]


class WorkflowSerializer(serializers.ModelSerializer[Workflow]):
    checks = serializers.ListField(child=serializers.ChoiceField(CHECKS), default=every_check)

    class Meta:
        model = Workflow
        fields = ("id", "name", "checks")

    def validate_checks(self, checks: list[str]) -> list[str]:
        if not checks or len(set(checks)) < len(checks):
            raise serializers.ValidationError("expected at least one check, and each of them once")
        return checks


class StartSerializer(serializers.Serializer[Any]):
    """What a run is started with."""

    name = serializers.CharField(max_length=200)
    readings = serializers.ListField(
        child=serializers.FloatField(allow_null=True),
        min_length=1,
        max_length=1000,
        help_text="One per hour; `null` where there is none.",
    )


class StartedSerializer(serializers.ModelSerializer[Run]):
    class Meta:
        model = Run
        fields = ("id", "name", "status")


class FindingSerializer(serializers.ModelSerializer[Finding]):
    check = serializers.ChoiceField(CHECKS, source="check_name")

    class Meta:
        model = Finding
        fields = ("check", "position", "rule", "severity")


class RunSerializer(serializers.ModelSerializer[Run]):
    findings = FindingSerializer(many=True, read_only=True)

    class Meta:
        model = Run
        fields = ("id", "name", "status", "workflow", "awaited", "errors", "warnings", "findings")
        read_only_fields = fields


class OrganisationSerializer(serializers.ModelSerializer[Organisation]):
    """A client, and what is left of its quota."""

    used = serializers.SerializerMethodField(help_text="How many runs it has started this month.")

    class Meta:
        model = Organisation
        fields = ("name", "quota", "used", "runs", "finished", "errors", "warnings")

    def get_used(self, organisation: Organisation) -> int:
        return quota.used(organisation)
