"""What jobs call when they are done.  It is written as if every callback arrived once."""

import uuid
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from django.core.exceptions import BadRequest
from django.db.models import F
from django.views.decorators.http import require_POST

from examples.validation_service import environment
from examples.validation_service.jobs.checks import FINDINGS, Found, errors
from examples.validation_service.jobs.envelopes import SOURCE, CheckCallback
from examples.validation_service.validations.models import Execution, Finding, Organisation, Run
from retrysafe.callbacks import receipts
from retrysafe.django import guard


def is_known(callback: CheckCallback) -> bool:
    try:
        return Run.objects.filter(pk=uuid.UUID(callback.run_id)).exists()
    except ValueError:
        return False


finished = receipts(guard("job-callbacks"), source=SOURCE, check=is_known, lease=environment.LEASE)


@require_POST
@finished.django
def check_finished(callback: CheckCallback) -> None:
    """A check is done: its findings, the status and the counts of its run, and those of the organisation."""
    findings = read_result(callback.result_uri)
    wrong = errors(findings)
    warnings = len(findings) - wrong
    Finding.objects.bulk_create(
        Finding(
            run_id=callback.run_id,
            check_name=callback.check,
            position=found.position,
            rule=found.rule,
            severity=found.severity,
        )
        for found in findings
    )
    # Counted by the database: the other check of the run may call back at the same moment.
    counted = Run.objects.filter(pk=callback.run_id)
    counted.update(awaited=F("awaited") - 1, errors=F("errors") + wrong, warnings=F("warnings") + warnings)
    run = counted.get()
    done = run.awaited == 0
    if done:
        ended = Run.Status.FAILED if run.errors else Run.Status.PASSED
        counted.filter(status=Run.Status.RUNNING).update(status=ended)
    Execution.objects.filter(run=run, check_name=callback.check).update(finished=True)
    Organisation.objects.filter(pk=run.organisation_id).update(
        finished=F("finished") + int(done), errors=F("errors") + wrong, warnings=F("warnings") + warnings
    )


def read_result(uri: str) -> list[Found]:
    """What a job has written.  Only from the folder of jobs: a callback must not choose what is read."""
    path = Path(url2pathname(urlsplit(uri).path)).resolve()
    if not path.is_relative_to(environment.JOBS) or not path.is_file():
        raise BadRequest("result_uri is not the result of a job of this service")
    return FINDINGS.validate_json(path.read_bytes())
