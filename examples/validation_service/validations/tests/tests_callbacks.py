"""Callbacks of jobs: findings, statuses and counts once, however often they are delivered."""

import uuid
from typing import Any

from examples.validation_service.jobs.checks import Check
from examples.validation_service.validations.callbacks import finished
from examples.validation_service.validations.models import Execution, Finding, Organisation, Run
from examples.validation_service.validations.tests.clients import ServiceTestCase


class Callbacks(ServiceTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.run_started = Run.objects.get(pk=self.start().json()["id"])

    def test_a_run_that_ends(self) -> None:
        for check in Check:
            assert self.call_back(self.run_started, check).json() == {
                "message": "Callback processed",
                "idempotent_replayed": False,
            }
        run = self.client_of_north.get(f"/api/runs/{self.run_started.pk}/").json()
        assert (run["status"], run["awaited"], run["errors"], run["warnings"]) == ("failed", 0, 1, 1)
        assert [one["rule"] for one in run["findings"]] == ["missing", "too high"]
        north = Organisation.objects.get(pk=self.north.pk)
        assert (north.finished, north.errors, north.warnings) == (1, 1, 1)
        assert not Execution.objects.filter(finished=False).exists()

    def test_a_callback_that_comes_again(self) -> None:
        self.call_back(self.run_started)
        again = self.call_back(self.run_started)
        [receipt] = finished.list(str(self.run_started.pk))
        assert again.json() == {
            "message": "Callback already processed",
            "idempotent_replayed": True,
            "original_received_at": receipt.received_at.isoformat(),
        }
        assert Finding.objects.count() == 2
        self.run_started.refresh_from_db()
        assert (self.run_started.awaited, self.run_started.errors) == (1, 1)

    def test_without_an_id(self) -> None:
        """Of a job that knows no ids: each delivery is handled, as it always was."""
        for _ in range(2):
            assert self.call_back(self.run_started, callback_id=None).status_code == 200
        assert Finding.objects.count() == 4

    def test_what_is_refused(self) -> None:
        """An unknown run is 404, what is not valid 422 or 400; none of it leaves a receipt or a finding."""
        refused: tuple[tuple[int, dict[str, Any]], ...] = (
            (404, {"run_id": "none"}),
            (404, {"run_id": str(uuid.uuid4())}),
            (422, {"status": "done"}),
            (422, {"check": "smell"}),
            (400, {"result_uri": "file:///etc/passwd"}),
        )
        for status, changed in refused:
            with self.subTest(changed):
                assert self.call_back(self.run_started, **changed).status_code == status
                assert list(finished.list(str(self.run_started.pk))) == []
                assert Finding.objects.count() == 0
        assert self.call_back(self.run_started).status_code == 200

    def test_a_run_that_was_cancelled(self) -> None:
        """What a job has found by then is added, and the run stays cancelled."""
        self.client_of_north.post(
            f"/api/runs/{self.run_started.pk}/cancel/", headers={"Idempotency-Key": str(uuid.uuid4())}
        )
        for check in Check:
            self.call_back(self.run_started, check)
        self.run_started.refresh_from_db()
        assert (self.run_started.status, self.run_started.errors) == ("cancelled", 1)
