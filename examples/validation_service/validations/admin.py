"""Organisations, their quota and their runs, for operators.  Records of keys are under *Retrysafe*."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpRequest

from examples.validation_service.validations.models import ApiToken, Organisation, Run, Usage, Workflow

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin


class OrganisationAdmin(ModelAdmin):
    list_display = ("name", "quota", "runs", "finished", "errors", "warnings")
    readonly_fields = ("runs", "finished", "errors", "warnings")


class UsageAdmin(ModelAdmin):
    list_display = ("organisation", "month", "runs")
    readonly_fields = list_display


class ApiTokenAdmin(ModelAdmin):
    list_display = ("organisation", "user", "read_only", "revoked_at")
    readonly_fields = ("organisation", "user")

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002 - as Django has it
        return False  # it could not be shown: `manage.py add_organisation` makes one


class RunAdmin(ModelAdmin):
    list_display = ("name", "organisation", "status", "errors", "warnings", "started_at")
    list_filter = ("status", "organisation")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False


admin.site.register(Organisation, OrganisationAdmin)
admin.site.register(Usage, UsageAdmin)
admin.site.register(ApiToken, ApiTokenAdmin)
admin.site.register(Workflow)
admin.site.register(Run, RunAdmin)
