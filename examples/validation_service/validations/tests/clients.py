"""What the tests have in common: an organisation with a workflow, and clients that send keys."""

import uuid
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from django.contrib.auth.models import User
from django.test import TestCase
from rest_framework.test import APIClient

from examples.validation_service import environment
from examples.validation_service.jobs.checks import Check
from examples.validation_service.jobs.envelopes import CheckEnvelope
from examples.validation_service.jobs.job import work
from examples.validation_service.validations.models import ApiToken, Execution, Organisation, Run, Workflow

READINGS = [1.0, None, 120.0]
"""One error and one warning, of the check `range`."""


class ServiceTestCase(TestCase):
    """North has a workflow and a quota of two runs; south has nothing."""

    north: Organisation
    south: Organisation
    workflow: Workflow

    @classmethod
    def setUpTestData(cls) -> None:
        cls.north = Organisation.objects.create(name="north", quota=2)
        cls.south = Organisation.objects.create(name="south")
        cls.workflow = Workflow.objects.create(
            organisation=cls.north, name="meters", checks=[check.value for check in Check]
        )

    def setUp(self) -> None:
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.enterContext(patch.object(environment, "JOBS", Path(folder.name).resolve()))
        self.client_of_north = new_client(self.north)
        self.client_of_south = new_client(self.south)

    def start(self, client: APIClient | None = None, **changed: Any) -> Any:
        """Start a run; `key=None` sends none."""
        key = changed.pop("key", str(uuid.uuid4()))
        return (client or self.client_of_north).post(
            f"/api/workflows/{self.workflow.pk}/start/",
            {"name": "monday", "readings": READINGS} | changed,
            headers={} if key is None else {"Idempotency-Key": key},
        )

    def call_back(self, run: Run, of: Check = Check.RANGE, **changed: Any) -> Any:
        """What its job would send."""
        [execution] = Execution.objects.filter(run=run, check_name=of)
        envelope = CheckEnvelope.model_validate_json(execution.envelope)
        envelope.folder.mkdir(exist_ok=True)
        callback = work(envelope).model_dump(mode="json") | changed
        return self.client.post("/api/callbacks/", callback, content_type="application/json")

    def finished(self) -> Run:
        """A run whose jobs have called back."""
        run = Run.objects.get(pk=self.start().json()["id"])
        for check in Check:
            assert self.call_back(run, check).status_code == 200
        run.refresh_from_db()
        return run


def new_client(organisation: Organisation, *, name: str = "", read_only: bool = False) -> APIClient:
    user, _ = User.objects.get_or_create(username=name or organisation.name)
    token = ApiToken.issue(organisation, user, read_only=read_only)
    return APIClient(headers={"Authorization": f"Bearer {token}"})
