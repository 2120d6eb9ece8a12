"""What the audit notices."""

from collections.abc import Callable
from typing import Any

from django.db.models import F

from examples.validation_service.audit import audit
from examples.validation_service.jobs.checks import Check
from examples.validation_service.jobs.envelopes import CheckCallback, Status
from examples.validation_service.validations import launching
from examples.validation_service.validations.callbacks import finished
from examples.validation_service.validations.models import Finding, Organisation, Run, Usage
from examples.validation_service.validations.tests.clients import ServiceTestCase
from retrysafe.django.models import Record


class Audit(ServiceTestCase):
    """One run of north, whose checks have called back."""

    def setUp(self) -> None:
        super().setUp()
        self.ended = self.finished()
        self.told = {
            "id": str(self.ended.pk),
            "name": "monday",
            "status": "failed",
            "awaited": 0,
            "errors": 1,
            "warnings": 1,
        }

    def test_nothing(self) -> None:
        assert audit([self.told]) == (1, 2, 2, 2, [])

    def test_what_was_changed(self) -> None:
        for change, found in (
            (
                lambda: Finding.objects.create(
                    run=self.ended, check_name="range", position=1, rule="missing", severity="error"
                ),
                "monday: 1 of 3 findings are too many",
            ),
            (
                Finding.objects.filter(rule="missing").delete,
                "monday: 1 of 2 findings are missing",
            ),
            (
                lambda: Run.objects.update(status="passed"),
                "monday: status, awaited, errors and warnings should be ('failed', 0, 1, 1), "
                "and are ('passed', 0, 1, 1)",
            ),
            (
                lambda: Organisation.objects.filter(name="north").update(finished=2),
                "north: runs, finished, errors and warnings should be (1, 1, 1, 1), and are (1, 2, 1, 1)",
            ),
            (
                lambda: Usage.objects.update(runs=F("runs") + 1),
                "north: quota should be used by 1 runs, and is by 2",
            ),
            (
                Record.objects.filter(door="callback", details__contains="failed").delete,
                "the receipt of monday, range is missing",
            ),
        ):
            self.check_change(change, found)

    def check_change(self, change: Callable[[], Any], found: str) -> None:
        from django.db import transaction

        with self.subTest(found), transaction.atomic():
            change()
            assert audit().wrong == [found]
            transaction.set_rollback(True)

    def test_a_run_that_was_made_twice(self) -> None:
        """As without keys: it is counted, in the table and against the quota."""
        self.finished()
        assert audit().wrong == ["monday of north has 2 runs"]

    def test_receipts_of_other_callbacks(self) -> None:
        """Such as of a job that was launched with another id."""
        other = launching.new_envelope(self.ended, Check.RANGE)
        with finished.handling(other.callback(CheckCallback, check=Check.RANGE, status=Status.FAILED)):
            pass
        assert audit().wrong == [
            f"the receipt {other.context.callback_id} of run {self.ended.pk} belongs to no execution"
        ]

    def test_a_report_that_did_not_stay_true(self) -> None:
        [wrong] = audit([self.told | {"status": "passed"}]).wrong
        assert wrong.startswith("monday was reported as {'name': 'monday', 'status': 'passed', ")
        unknown = "00000000-0000-0000-0000-000000000000"
        assert audit([self.told | {"id": unknown}]).wrong == [
            f"monday was reported as run {unknown}, which does not exist"
        ]

    def test_a_run_that_was_cancelled(self) -> None:
        """Its other check may never call back; what has, is counted."""
        run = Run.objects.get(pk=self.start().json()["id"])
        self.call_back(run, Check.RANGE)
        Run.objects.filter(pk=run.pk).update(status="cancelled", name="tuesday")
        assert audit().wrong == []
