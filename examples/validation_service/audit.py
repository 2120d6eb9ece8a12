"""Counts what is in the tables against what has to be there: `python -m examples.validation_service.audit`.

The same readings have the same findings, so what each run should have found is validated once more, here.
Whatever was lost, killed and sent again: every finding is there once, and status and counts agree with them.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Engine, orm, select

from examples.validation_service.checks import Check, errors, validate
from examples.validation_service.envelopes import SOURCE, CheckEnvelope, Status
from examples.validation_service.models import Execution, Finding, Organisation, Run
from retrysafe import Guard, stores
from retrysafe.callbacks import Receipt, receipts


class Tally(NamedTuple):
    """How many rows there are, and what does not add up, in sentences."""

    runs: int
    findings: int
    receipts: int
    deliveries: int
    """Callbacks that have come for these receipts, the first ones included."""
    wrong: list[str]


def audit(engine: Engine, reported: Iterable[Mapping[str, Any]] = ()) -> Tally:
    """`reported` are runs as clients were told of them."""
    with orm.Session(engine) as session:
        runs = session.scalars(select(Run).order_by(Run.name)).all()
        findings = session.scalars(select(Finding)).all()
        received = _receipts(engine, runs)
        wrong = [
            *_summaries(session, runs),
            *_doubled(runs),
            *_runs(runs, findings),
            *_received(session, runs, received),
            *_reported(session, reported),
        ]
    return Tally(
        len(runs),
        len(findings),
        len(received),
        sum(receipt.deliveries for receipt in received),
        wrong,
    )


def _doubled(runs: Iterable[Run]) -> Iterator[str]:
    wanted = Counter((run.organisation, run.name) for run in runs)
    for (organisation, name), times in wanted.items():
        if times > 1:
            yield f"{name} of {organisation} has {times} runs"


def _runs(runs: Iterable[Run], findings: Iterable[Finding]) -> Iterator[str]:
    by_run: dict[str, Counter[tuple[str, int, str, str]]] = defaultdict(Counter)
    for one in findings:
        by_run[one.run_id][one.check, one.position, one.rule, one.severity] += 1
    for run in runs:
        wanted = Counter(
            (check.value, found.position, found.rule, found.severity.value)
            for check in Check
            for found in validate(check, run.readings)
        )
        stored = by_run[run.id]
        if extra := (stored - wanted).total():
            yield f"{run.name}: {extra} of {stored.total()} findings are too many"
        if missing := (wanted - stored).total():
            yield f"{run.name}: {missing} of {wanted.total()} findings are missing"
        errors, warnings = _counts(run)
        said = ("failed" if errors else "passed", 0, errors, warnings)
        found = (run.status, run.awaited, run.errors, run.warnings)
        if found != said:
            yield f"{run.name}: status, awaited, errors and warnings should be {said}, and are {found}"


def _summaries(session: orm.Session, runs: Iterable[Run]) -> Iterator[str]:
    for organisation in session.scalars(select(Organisation).order_by(Organisation.name)):
        own = [run for run in runs if run.organisation == organisation.name]
        errors, warnings = (sum(counts) for counts in zip((0, 0), *map(_counts, own), strict=True))
        wanted = (len(own), len(own), errors, warnings)
        found = (organisation.runs, organisation.finished, organisation.errors, organisation.warnings)
        if found != wanted:
            what = f"{organisation.name}: runs, finished, errors and warnings"
            yield f"{what} should be {wanted}, and are {found}"


def _counts(run: Run) -> tuple[int, int]:
    """The errors and warnings that the run should have."""
    found = [found for check in Check for found in validate(check, run.readings)]
    return errors(found), len(found) - errors(found)


def _receipts(engine: Engine, runs: Iterable[Run]) -> list[Receipt]:
    guard = Guard(stores.from_engine(engine), profile="job-callbacks")
    try:
        finished = receipts(guard, source=SOURCE)
        return [receipt for run in runs for receipt in finished.list(run.id)]
    finally:
        guard.close()


def _received(session: orm.Session, runs: Iterable[Run], received: Iterable[Receipt]) -> Iterator[str]:
    """Whether each callback with an id has one receipt, which says what the callback said."""
    found = {(receipt.subject, receipt.id): receipt for receipt in received}
    names = {run.id: run.name for run in runs}
    for execution in session.scalars(select(Execution)):
        envelope = CheckEnvelope.model_validate_json(execution.envelope)
        if envelope.context.callback_id is None:
            continue
        what = f"the receipt of {names[execution.run_id]}, {execution.check}"
        receipt = found.pop((execution.run_id, envelope.context.callback_id), None)
        if receipt is None:
            yield f"{what} is missing"
            continue
        wrong = errors(validate(envelope.check, envelope.readings))
        wanted = ("completed", Status.FAILED if wrong else Status.PASSED)
        if (receipt.state, receipt.status) != wanted:
            yield f"{what} should be {wanted}, and is {(receipt.state, receipt.status)}"
    for subject, id in found:
        yield f"the receipt {id} of run {subject} belongs to no execution"


def _reported(session: orm.Session, reported: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Whether what a client was told in the end has stayed true."""
    for said in reported:
        run = session.get(Run, said["id"])
        if run is None:
            yield f"{said['name']} was reported as run {said['id']}, which does not exist"
            continue
        stored = {name: getattr(run, name) for name in ("name", "status", "awaited", "errors", "warnings")}
        told = {name: said[name] for name in stored}
        if told != stored:
            yield f"{run.name} was reported as {told}, and is {stored}"


if __name__ == "__main__":
    from examples.validation_service.database import engine

    tally = audit(engine)
    print(*tally.wrong or ["findings, statuses, counts and receipts agree"], sep="\n")
    sys.exit(bool(tally.wrong))
