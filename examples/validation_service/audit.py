"""Counts what is in the tables against what has to be there: `python -m examples.validation_service.audit`.

The same readings have the same findings, so what each run should have found is validated once more, here.
Whatever was lost, killed and sent again: every finding is there once, and status and counts agree with them.
"""

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

if __name__ == "__main__":
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.validation_service.settings")
    django.setup()

from django.db.models import Sum

from examples.validation_service.jobs.checks import Check, errors, validate
from examples.validation_service.jobs.envelopes import SOURCE, CheckEnvelope, Status
from examples.validation_service.validations.models import Execution, Finding, Organisation, Run, Usage
from retrysafe.callbacks import Receipt, receipts
from retrysafe.django import guard


class Tally(NamedTuple):
    """How many rows there are, and what does not add up, in sentences."""

    runs: int
    findings: int
    receipts: int
    deliveries: int
    """Callbacks that have come for these receipts, the first ones included."""
    wrong: list[str]


def audit(reported: Iterable[Mapping[str, Any]] = ()) -> Tally:
    """`reported` are runs as clients were told of them."""
    runs = [_Audited(run) for run in _all_runs()]
    findings = list(Finding.objects.all())
    received = _receipts(runs)
    wrong = [
        *_summaries(runs),
        *_doubled(runs),
        *_runs(runs, findings),
        *_received(runs, received),
        *_reported(reported),
    ]
    return Tally(
        len(runs),
        len(findings),
        len(received),
        sum(receipt.deliveries for receipt in received),
        wrong,
    )


def _all_runs() -> Iterable[Run]:
    return Run.objects.select_related("organisation").prefetch_related("executions").order_by("name")


class _Audited:
    """A run, and what should be known of it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.name = run.name
        self.organisation = run.organisation.name
        self.executions: list[Execution] = list(run.executions.all())  # type: ignore[attr-defined]  # by related_name
        self.is_cancelled = run.status == Run.Status.CANCELLED
        # Of a run that was cancelled, no job needs to have come to its end.
        self.checks = [
            Check(one.check_name) for one in self.executions if one.finished or not self.is_cancelled
        ]
        found = [found for check in self.checks for found in validate(check, run.readings)]
        self.errors = errors(found)
        self.warnings = len(found) - self.errors
        self.awaited = len(self.executions) - len(self.checks)

    @property
    def status(self) -> str:
        if self.is_cancelled:
            return "cancelled"
        return "failed" if self.errors else "passed"


def _doubled(runs: Iterable[_Audited]) -> Iterator[str]:
    wanted = Counter((run.organisation, run.name) for run in runs)
    for (organisation, name), times in wanted.items():
        if times > 1:
            yield f"{name} of {organisation} has {times} runs"


def _runs(runs: Iterable[_Audited], findings: Iterable[Finding]) -> Iterator[str]:
    by_run: dict[object, Counter[tuple[str, int, str, str]]] = defaultdict(Counter)
    for one in findings:
        by_run[one.run_id][one.check_name, one.position, one.rule, one.severity] += 1
    for audited in runs:
        run = audited.run
        wanted = Counter(
            (check.value, found.position, found.rule, found.severity.value)
            for check in audited.checks
            for found in validate(check, run.readings)
        )
        stored = by_run[run.pk]
        if extra := (stored - wanted).total():
            yield f"{run.name}: {extra} of {stored.total()} findings are too many"
        if missing := (wanted - stored).total():
            yield f"{run.name}: {missing} of {wanted.total()} findings are missing"
        said = (audited.status, audited.awaited, audited.errors, audited.warnings)
        found = (run.status, run.awaited, run.errors, run.warnings)
        if found != said:
            yield f"{run.name}: status, awaited, errors and warnings should be {said}, and are {found}"


def _summaries(runs: Iterable[_Audited]) -> Iterator[str]:
    for organisation in Organisation.objects.order_by("name"):
        own = [run for run in runs if run.organisation == organisation.name]
        wanted = (
            len(own),
            sum(run.awaited == 0 for run in own),
            sum(run.errors for run in own),
            sum(run.warnings for run in own),
        )
        found = (organisation.runs, organisation.finished, organisation.errors, organisation.warnings)
        if found != wanted:
            what = f"{organisation.name}: runs, finished, errors and warnings"
            yield f"{what} should be {wanted}, and are {found}"
        used = Usage.objects.filter(organisation=organisation).aggregate(runs=Sum("runs"))["runs"] or 0
        if used != len(own):
            yield f"{organisation.name}: quota should be used by {len(own)} runs, and is by {used}"


def _receipts(runs: Iterable[_Audited]) -> list[Receipt]:
    finished = receipts(guard("job-callbacks"), source=SOURCE)
    return [receipt for run in runs for receipt in finished.list(str(run.run.pk))]


def _received(runs: Iterable[_Audited], received: Iterable[Receipt]) -> Iterator[str]:
    """Whether each callback with an id has one receipt, which says what the callback said."""
    found = {(receipt.subject, receipt.id): receipt for receipt in received}
    for audited in runs:
        for execution in audited.executions:
            envelope = CheckEnvelope.model_validate_json(execution.envelope)
            if envelope.context.callback_id is None or envelope.check not in audited.checks:
                continue
            what = f"the receipt of {audited.name}, {execution.check_name}"
            receipt = found.pop((envelope.run_id, envelope.context.callback_id), None)
            if receipt is None:
                yield f"{what} is missing"
                continue
            wrong = errors(validate(envelope.check, envelope.readings))
            wanted = ("completed", Status.FAILED if wrong else Status.PASSED)
            if (receipt.state, receipt.status) != wanted:
                yield f"{what} should be {wanted}, and is {(receipt.state, receipt.status)}"
    for subject, id in found:
        yield f"the receipt {id} of run {subject} belongs to no execution"


def _reported(reported: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Whether what a client was told in the end has stayed true."""
    for said in reported:
        run = Run.objects.filter(pk=said["id"]).first()
        if run is None:
            yield f"{said['name']} was reported as run {said['id']}, which does not exist"
            continue
        stored = {name: getattr(run, name) for name in ("name", "status", "awaited", "errors", "warnings")}
        told = {name: said[name] for name in stored}
        if told != stored:
            yield f"{run.name} was reported as {told}, and is {stored}"


if __name__ == "__main__":
    tally = audit()
    print(*tally.wrong or ["findings, statuses, counts and receipts agree"], sep="\n")
    sys.exit(bool(tally.wrong))
