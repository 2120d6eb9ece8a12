"""A service that validates readings by jobs.  Its handlers are written as if everything arrived once."""

import uuid
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit
from urllib.request import url2pathname

from fastapi import Depends, FastAPI, Header, HTTPException
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat
from sqlalchemy import orm, select, update

from examples.validation_service import launching, settings
from examples.validation_service.checks import FINDINGS, Check, Found, Severity, errors
from examples.validation_service.database import Session, events, get_session, requests
from examples.validation_service.envelopes import SOURCE, CheckCallback, CheckEnvelope
from examples.validation_service.models import Execution, Finding, Organisation, Run
from retrysafe import current
from retrysafe.callbacks import receipts
from retrysafe.fastapi import idempotent, protect

app = FastAPI(title="A validation service", lifespan=launching.lifespan)
protect(app, requests)
protect(app, events)


def is_known(callback: CheckCallback) -> bool:
    with Session() as session:
        return session.get(Run, callback.run_id) is not None


finished = receipts(events, source=SOURCE, check=is_known)

Db = Annotated[orm.Session, Depends(get_session)]
# Set by the service in front of this one, which authenticates clients.
Client = Annotated[str, Header(alias="X-Organisation")]


class Submission(BaseModel):
    name: Annotated[str, Field(min_length=1, max_length=200)]
    readings: Annotated[list[FiniteFloat | None], Field(min_length=1, max_length=1000)]


class Submitted(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    id: str
    name: str
    status: str


class FindingOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    check: Check
    position: int
    rule: str
    severity: Severity


class RunOut(Submitted):
    awaited: int
    errors: int
    warnings: int
    findings: list[FindingOut] = []


@app.post("/runs", status_code=202)
@idempotent(requests)
def submit(wanted: Submission, client: Client, session: Db) -> Submitted:
    """Validate readings: a run, and a job for each check, which are launched once this is committed."""
    counted = update(Organisation).where(Organisation.name == client)
    if session.scalar(counted.values(runs=Organisation.runs + 1).returning(Organisation.name)) is None:
        raise HTTPException(403, "this organisation is not known")
    run = Run(
        id=str(uuid.uuid4()),
        organisation=client,
        name=wanted.name,
        readings=wanted.readings,
        awaited=len(Check),
        status="running",
    )
    session.add(run)
    session.flush()
    for check in Check:
        envelope = new_envelope(run, check)
        session.add(Execution(run_id=run.id, check=check, envelope=envelope.model_dump_json()))
    session.commit()  # provisional: it becomes real together with the response
    current().on_commit(launching.wake)
    return Submitted.model_validate(run)


def new_envelope(run: Run, check: Check) -> CheckEnvelope:
    envelope = CheckEnvelope.launch(
        run_id=run.id,
        callback_url=settings.CALLBACK_URL,
        check=check,
        readings=run.readings,
        folder=settings.JOBS / f"{run.id}-{check}",
    )
    if settings.CALLBACK_IDS:
        return envelope
    return envelope.model_copy(update={"context": envelope.context.model_copy(update={"callback_id": None})})


@app.get("/runs/{run_id}")
def report(run_id: str, client: Client, session: Db) -> RunOut:
    run = session.get(Run, run_id)
    if run is None or run.organisation != client:
        raise HTTPException(404, "there is no such run")
    found = select(Finding).where(Finding.run_id == run.id).order_by(Finding.check, Finding.position)
    findings = [FindingOut.model_validate(one) for one in session.scalars(found)]
    return RunOut.model_validate(run).model_copy(update={"findings": findings})


@app.post("/callbacks")
@finished.fastapi
def check_finished(callback: CheckCallback, session: Db) -> None:
    """A check is done: its findings, the status and the counts of its run, and those of the organisation."""
    findings = read_result(callback.result_uri)
    wrong = errors(findings)
    warnings = len(findings) - wrong
    for found in findings:
        session.add(
            Finding(
                run_id=callback.run_id,
                check=callback.check,
                position=found.position,
                rule=found.rule,
                severity=found.severity,
            )
        )
    # Counted by the database: the other check of the run may call back at the same moment.
    counted = update(Run).where(Run.id == callback.run_id)
    counted = counted.values(
        awaited=Run.awaited - 1, errors=Run.errors + wrong, warnings=Run.warnings + warnings
    )
    run = session.scalars(counted.returning(Run)).one()
    done = run.awaited == 0
    if done:
        run.status = "failed" if run.errors else "passed"
    execution = update(Execution).where(Execution.run_id == run.id, Execution.check == callback.check)
    session.execute(execution.values(finished=True))
    organisation = update(Organisation).where(Organisation.name == run.organisation)
    session.execute(
        organisation.values(
            finished=Organisation.finished + int(done),
            errors=Organisation.errors + wrong,
            warnings=Organisation.warnings + warnings,
        )
    )
    session.commit()  # provisional: it becomes real together with the receipt


def read_result(uri: str) -> list[Found]:
    """What a job has written.  Only from the folder of jobs: a callback must not choose what is read."""
    path = Path(url2pathname(urlsplit(uri).path)).resolve()
    if not path.is_relative_to(settings.JOBS) or not path.is_file():
        raise HTTPException(422, "result_uri is not the result of a job of this service")
    return FINDINGS.validate_json(path.read_bytes())
