"""Starting runs: what a retry gets, what is counted, and who is refused before a key is used."""

import uuid
from typing import Any
from unittest.mock import patch

from django.utils import timezone

from examples.validation_service.validations import launching
from examples.validation_service.validations.models import Execution, Organisation, Run, Usage
from examples.validation_service.validations.quota import used
from examples.validation_service.validations.tests.clients import READINGS, ServiceTestCase, new_client
from retrysafe.django.models import Record
from retrysafe.testing import assert_idempotent

KEY = "5a8b4e0c-8c5c-4b49-8f0e-1f6a4f2f7d11"


class Start(ServiceTestCase):
    def test_a_retry(self) -> None:
        """It gets the first response, and there is one run, one execution for each check, one quota unit."""
        first, second = self.start(key=KEY), self.start(key=KEY)
        assert (first.status_code, second.status_code) == (202, 202)
        assert second.content == first.content
        assert second["Idempotent-Replayed"] == "true"
        assert second["Original-Request-Id"] == first["X-Request-Id"]
        assert "Idempotent-Replayed" not in first
        assert (Run.objects.count(), Execution.objects.count()) == (1, 2)
        assert used(self.north) == 1

    def test_all_that_a_client_may_do(self) -> None:
        """Repeat it, send another body with its key, send it with another key: all of it with one call."""
        Organisation.objects.update(quota=100)
        started = assert_idempotent(
            self.client_of_north,
            "POST",
            f"/api/workflows/{self.workflow.pk}/start/",
            json={"name": "monday", "readings": READINGS},
            effects=lambda: used(self.north),
            concurrent=0,  # a test has one connection; several at once are sent to a service that runs
        )
        assert started.status_code == 202

    def test_another_body(self) -> None:
        self.start(key=KEY)
        reused = self.start(key=KEY, readings=[2.0])
        assert (reused.status_code, reused.json()["code"]) == (422, "key-reused")
        assert used(self.north) == 1

    def test_without_a_key(self) -> None:
        """It is served, twice; and the log says so, because keys are to be required one day."""
        with self.assertLogs("retrysafe", "WARNING") as logged:
            assert self.start(key=None).status_code == 202
        assert "'/api/workflows/{pk}/start/': a request without a key" in logged.output[0]
        assert self.start(key=None).status_code == 202
        assert (Run.objects.count(), used(self.north)) == (2, 2)

    def test_the_same_key_elsewhere(self) -> None:
        """Of another organisation, or at another endpoint, it is another key."""
        Organisation.objects.update(quota=10)
        self.workflow.pk, self.workflow.organisation = None, self.south
        self.workflow.save()
        assert self.start(self.client_of_south, key=KEY).status_code == 202
        self.workflow.refresh_from_db()
        created = self.client_of_south.post(
            "/api/workflows/", {"name": "second"}, headers={"Idempotency-Key": KEY}
        )
        assert created.status_code == 201, created.content
        assert Record.objects.filter(key=KEY).count() == 2

    def test_another_user_of_the_organisation(self) -> None:
        """A colleague may retry: the key belongs to the organisation."""
        first = self.start(key=KEY)
        again = self.start(new_client(self.north, name="colleague"), key=KEY)
        assert (again.content, again["Idempotent-Replayed"]) == (first.content, "true")


class Quota(ServiceTestCase):
    def test_used_up(self) -> None:
        """429 until the month ends; the key is not used up, and works when there is quota again."""
        self.start()
        self.start()
        refused = self.start(key=KEY)
        assert refused.status_code == 429
        assert int(refused["Retry-After"]) > 0
        assert (Run.objects.count(), used(self.north)) == (2, 2)
        Organisation.objects.filter(pk=self.north.pk).update(quota=3)
        retried = self.start(key=KEY)
        assert (retried.status_code, "Idempotent-Replayed" in retried) == (202, False)
        assert used(self.north) == 3

    def test_a_start_that_is_rolled_back(self) -> None:
        """The run was counted, and the view fails then: nothing is left of it, and the retry runs."""
        self.client_of_north.raise_request_exception = False
        full = OSError("the disk is full")
        with (
            patch.object(launching, "new_envelope", side_effect=full),
            self.assertLogs("django.request", "ERROR") as logged,
        ):
            failed = self.start(key=KEY)
        assert failed.status_code == 500
        [error] = logged.records
        assert error.exc_info is not None
        assert error.exc_info[1] is full
        assert (Run.objects.count(), Usage.objects.count()) == (0, 0)
        assert Organisation.objects.get(pk=self.north.pk).runs == 0
        assert self.start(key=KEY).status_code == 202
        assert used(self.north) == 1

    def test_what_is_left(self) -> None:
        self.start()
        shown = self.client_of_north.get("/api/organisation/").json()
        assert (shown["quota"], shown["used"], shown["runs"]) == (2, 1, 1)


class Refused(ServiceTestCase):
    """Before a key is claimed: none of these leaves a record."""

    def tearDown(self) -> None:
        assert Record.objects.count() == 0
        assert (Run.objects.count(), Usage.objects.count()) == (0, 0)

    def test_no_token(self) -> None:
        self.client_of_north.credentials()
        self.client_of_north.defaults.pop("HTTP_AUTHORIZATION", None)
        assert self.start().status_code == 401

    def test_a_token_that_was_revoked(self) -> None:
        self.north.tokens.update(revoked_at=timezone.now())  # type: ignore[attr-defined]  # by related_name
        assert self.start().status_code == 401

    def test_a_token_that_is_read_only(self) -> None:
        client = new_client(self.north, name="auditor", read_only=True)
        assert self.start(client).status_code == 403
        assert client.get("/api/workflows/").status_code == 200

    def test_a_workflow_of_another_organisation(self) -> None:
        assert self.start(self.client_of_south).status_code == 404

    def test_readings_that_are_not_valid(self) -> None:
        """400, and the corrected request may be sent with the same key."""
        for wrong in ([], ["warm"], None, [1.0] * 1001):
            assert self.start(readings=wrong).status_code == 400


class ReplayAfterRefusal(ServiceTestCase):
    def test_a_revoked_token_gets_no_replay(self) -> None:
        self.start(key=KEY)
        self.north.tokens.update(revoked_at=timezone.now())  # type: ignore[attr-defined]  # by related_name
        assert self.start(key=KEY).status_code == 401

    def test_corrected(self) -> None:
        assert self.start(key=KEY, readings=[]).status_code == 400
        assert self.start(key=KEY).status_code == 202


class Others(ServiceTestCase):
    def test_a_workflow_is_created_once(self) -> None:
        created: Any = None
        for _ in range(2):
            created = self.client_of_north.post(
                "/api/workflows/",
                {"name": "range only", "checks": ["range"]},
                headers={"Idempotency-Key": KEY},
            )
            assert created.status_code == 201
        assert self.client_of_north.get("/api/workflows/").json()[-1] == created.json()
        assert len(self.client_of_north.get("/api/workflows/").json()) == 2

    def test_a_run_is_cancelled_once(self) -> None:
        """The retry gets the first response, and not the conflict that a second request would be."""
        run = self.start().json()["id"]
        url = f"/api/runs/{run}/cancel/"
        first = self.client_of_north.post(url, headers={"Idempotency-Key": KEY})
        again = self.client_of_north.post(url, headers={"Idempotency-Key": KEY})
        assert (first.status_code, first.json()["status"]) == (200, "cancelled")
        assert (again.status_code, again.content) == (200, first.content)
        other = self.client_of_north.post(url, headers={"Idempotency-Key": str(uuid.uuid4())})
        assert other.status_code == 409
        assert self.client_of_south.get(f"/api/runs/{run}/").status_code == 404

    def test_jobs_are_launched_after_the_commit(self) -> None:
        with self.captureOnCommitCallbacks() as callbacks:
            self.start(key=KEY)
            self.start(key=KEY)
        assert callbacks == [launching.wake]
