"""What a token may see and do.  All of it is asked before a key is claimed, and so before a replay."""

from typing import TYPE_CHECKING, Any

from django.db.models import QuerySet
from rest_framework.filters import BaseFilterBackend
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from examples.validation_service.validations.authentication import client_of, token_of

if TYPE_CHECKING:
    from rest_framework.views import APIView  # which imports these permissions, as defaults


class MayChange(BasePermission):
    """A token that is read-only starts nothing."""

    message = "this token is read-only"

    def has_permission(self, request: Request, view: "APIView") -> bool:  # noqa: ARG002 - as REST framework has it
        token = token_of(request)
        return token is not None and (request.method in SAFE_METHODS or not token.read_only)


class OfOrganisation(BaseFilterBackend):
    """What belongs to another organisation does not exist."""

    def filter_queryset(
        self,
        request: Request,
        queryset: "QuerySet[Any]",
        view: "APIView",  # noqa: ARG002 - as REST framework has it
    ) -> "QuerySet[Any]":
        return queryset.filter(organisation=client_of(request))
