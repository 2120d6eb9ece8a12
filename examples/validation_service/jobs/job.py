"""A job: `python -m examples.validation_service.jobs.job ENVELOPE`.

It validates, writes its result, and calls back until that is acknowledged.  Killed at any moment and started
again with the same envelope, it goes on: what is written is not written again, and the callback has the same
id and the same bytes.
"""

import argparse
import signal
import sys
from pathlib import Path

from examples.validation_service.environment import LONGEST_PAUSE
from examples.validation_service.jobs.checks import FINDINGS, errors, validate
from examples.validation_service.jobs.envelopes import CheckCallback, CheckEnvelope, Status
from examples.validation_service.jobs.job_folder import JobFolder
from retrysafe.callbacks.jobs import BackOff, DeliveryError, deliver


def work(envelope: CheckEnvelope) -> CheckCallback:
    folder = JobFolder(envelope.folder)
    if not folder.result.exists():
        written = folder.result.with_suffix(".tmp")
        written.write_bytes(FINDINGS.dump_json(validate(envelope.check, envelope.readings)))
        written.replace(folder.result)
    findings = FINDINGS.validate_json(folder.result.read_bytes())
    return envelope.callback(
        CheckCallback,
        check=envelope.check,
        status=Status.FAILED if errors(findings) else Status.PASSED,
        result_uri=folder.result.as_uri(),
    )


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it, as any signal does
    parser = argparse.ArgumentParser(prog="python -m examples.validation_service.jobs.job")
    parser.add_argument("envelope", type=Path)
    envelope = CheckEnvelope.read(parser.parse_args().envelope)
    folder = JobFolder(envelope.folder)
    try:
        deliver(
            work(envelope),
            url=envelope.context.callback_url,
            folder=folder.callbacks,
            back_off=BackOff(first=min(1.0, LONGEST_PAUSE), longest=LONGEST_PAUSE),
        )
    except DeliveryError as error:
        folder.given_up.write_text(str(error))  # another start would end in the same way
        sys.exit(str(error))


if __name__ == "__main__":
    main()
