"""The API.  Its views are written as if every request arrived once."""

from typing import Any

from django.db import transaction
from drf_spectacular.utils import OpenApiExample, OpenApiResponse, extend_schema
from rest_framework.decorators import action
from rest_framework.exceptions import APIException
from rest_framework.mixins import CreateModelMixin, ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.status import HTTP_202_ACCEPTED, HTTP_409_CONFLICT
from rest_framework.views import APIView
from rest_framework.viewsets import GenericViewSet

from examples.validation_service.jobs.checks import Check
from examples.validation_service.validations import launching, quota
from examples.validation_service.validations.authentication import client_of
from examples.validation_service.validations.models import Execution, Run, Workflow
from examples.validation_service.validations.serializers import (
    OrganisationSerializer,
    RunSerializer,
    StartedSerializer,
    StartSerializer,
    WorkflowSerializer,
)
from retrysafe.django import idempotent


class NotRunning(APIException):
    status_code = HTTP_409_CONFLICT
    default_detail = "this run has ended"
    default_code = "not-running"


class WorkflowViewSet(CreateModelMixin, ListModelMixin, RetrieveModelMixin, GenericViewSet[Workflow]):
    """Workflows of the client's organisation."""

    queryset = Workflow.objects.order_by("id")
    serializer_class = WorkflowSerializer

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if self.detail:
            # Here, before a key is claimed: a workflow of another organisation is 404, whatever the key.
            self.workflow = self.get_object()

    def perform_create(self, serializer: BaseSerializer[Workflow]) -> None:
        serializer.save(organisation=client_of(self.request))

    @extend_schema(
        examples=[
            OpenApiExample(
                "both checks",
                {"name": "meter readings", "checks": ["range", "continuity"]},
                request_only=True,
            )
        ]
    )
    @idempotent
    @transaction.atomic
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().create(request, *args, **kwargs)

    @extend_schema(
        request=StartSerializer,
        responses={
            202: StartedSerializer,
            429: OpenApiResponse(description="The quota of this month is used up. The key is not."),
        },
        examples=[
            OpenApiExample(
                "seven hours",
                {"name": "monday", "readings": [41.5, None, 120.0, 40.0, 40.0, 40.0, 40.0]},
                request_only=True,
            )
        ],
    )
    @action(detail=True, methods=["post"])
    @idempotent
    @transaction.atomic
    def start(self, request: Request, pk: str) -> Response:  # noqa: ARG002 - the workflow is found by now
        """Validate readings: a run, and a job for each check.  It counts against the organisation's quota.

        The run, its executions, the quota unit and the response are one transaction.  Jobs are launched once
        it is committed, and again until they have called back.
        """
        wanted = StartSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        organisation = client_of(request)
        quota.count_run(organisation)
        run = Run.objects.create(
            organisation=organisation,
            workflow=self.workflow,
            started_by=request.user,
            awaited=len(self.workflow.checks),
            **wanted.validated_data,
        )
        for check in map(Check, self.workflow.checks):
            envelope = launching.new_envelope(run, check)
            Execution.objects.create(run=run, check_name=check, envelope=envelope.model_dump_json())
        transaction.on_commit(launching.wake)
        return Response(StartedSerializer(run).data, HTTP_202_ACCEPTED)


class RunViewSet(RetrieveModelMixin, GenericViewSet[Run]):
    """Runs of the client's organisation, with what was found."""

    queryset = Run.objects.all()
    serializer_class = RunSerializer

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        self.run = self.get_object()

    @extend_schema(request=None, responses=RunSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    @transaction.atomic
    def cancel(self, request: Request, pk: str) -> Response:  # noqa: ARG002 - the run is found by now
        """Launch no more jobs for a run.  What jobs still find that have begun is added to it."""
        running = Run.objects.filter(pk=self.run.pk, status=Run.Status.RUNNING)
        if not running.update(status=Run.Status.CANCELLED):
            raise NotRunning
        self.run.refresh_from_db()
        return Response(RunSerializer(self.run).data)


class OrganisationView(APIView):
    """The client's own organisation, and what is left of its quota."""

    @extend_schema(responses=OrganisationSerializer)
    def get(self, request: Request) -> Response:
        return Response(OrganisationSerializer(client_of(request)).data)
