"""What the audit notices."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, Executable, create_engine, delete, insert, orm, text, update

from examples.validation_service.audit import audit
from examples.validation_service.checks import Check, errors, validate
from examples.validation_service.envelopes import SOURCE, CheckCallback, CheckEnvelope, Status
from examples.validation_service.models import Base, Execution, Finding, Organisation, Run
from retrysafe import Guard, stores
from retrysafe.callbacks import receipts

READINGS: list[float | None] = [1.0, None, 120.0]
"""One error and one warning."""

TOLD = {"id": "r-1", "name": "one", "status": "failed", "awaited": 0, "errors": 1, "warnings": 1}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """One run, whose checks have called back."""
    engine = create_engine(f"sqlite:///{tmp_path}/validation.db")
    Base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        session.add(Organisation(name="north", runs=1, finished=1, errors=1, warnings=1))
        session.add(
            Run(
                id="r-1",
                organisation="north",
                name="one",
                readings=READINGS,
                awaited=0,
                status="failed",
                errors=1,
                warnings=1,
            )
        )
        for check in Check:
            envelope = new_envelope(check)
            session.add(
                Execution(run_id="r-1", check=check, envelope=envelope.model_dump_json(), finished=True)
            )
            receive(engine, envelope)
            for found in validate(check, READINGS):
                session.add(
                    Finding(
                        run_id="r-1",
                        check=check,
                        position=found.position,
                        rule=found.rule,
                        severity=found.severity,
                    )
                )
        session.commit()
    yield engine
    engine.dispose()


def new_envelope(check: Check) -> CheckEnvelope:
    return CheckEnvelope.launch(
        run_id="r-1", callback_url=None, check=check, readings=READINGS, folder=Path("nowhere")
    )


def receive(engine: Engine, envelope: CheckEnvelope) -> None:
    """Leave the receipt of its callback."""
    wrong = errors(validate(envelope.check, envelope.readings))
    status = Status.FAILED if wrong else Status.PASSED
    callback = envelope.callback(CheckCallback, check=envelope.check, status=status)
    guard = Guard(stores.from_engine(engine), profile="job-callbacks")
    with receipts(guard, source=SOURCE).handling(callback):
        pass
    guard.close()


def test_nothing(engine: Engine) -> None:
    tally = audit(engine, [TOLD])
    assert tally == (1, 2, 2, 2, [])


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (
            insert(Finding).values(run_id="r-1", check="range", position=1, rule="missing", severity="error"),
            "one: 1 of 3 findings are too many",
        ),
        (delete(Finding).where(Finding.rule == "missing"), "one: 1 of 2 findings are missing"),
        (
            update(Run).values(status="passed"),
            "one: status, awaited, errors and warnings should be ('failed', 0, 1, 1), "
            "and are ('passed', 0, 1, 1)",
        ),
        (
            update(Organisation).values(finished=2),
            "north: runs, finished, errors and warnings should be (1, 1, 1, 1), and are (1, 2, 1, 1)",
        ),
        (
            text("DELETE FROM retrysafe_records WHERE details LIKE '%failed%'"),
            "the receipt of one, range is missing",
        ),
    ],
)
def test_what_was_changed(engine: Engine, change: Executable, found: str) -> None:
    with engine.begin() as connection:
        connection.execute(change)
    assert audit(engine).wrong == [found]


def test_a_run_that_was_made_twice(engine: Engine) -> None:
    with orm.Session(engine) as session:
        session.add(
            Run(
                id="r-2",
                organisation="north",
                name="one",
                readings=[1.0],
                awaited=0,
                status="passed",
            )
        )
        session.commit()
    assert audit(engine).wrong == [
        "north: runs, finished, errors and warnings should be (2, 2, 1, 1), and are (1, 1, 1, 1)",
        "one of north has 2 runs",
    ]


def test_receipts_of_other_callbacks(engine: Engine) -> None:
    """Such as of a job that was launched with another id."""
    other = new_envelope(Check.RANGE)
    receive(engine, other)
    assert audit(engine).wrong == [
        f"the receipt {other.context.callback_id} of run r-1 belongs to no execution"
    ]


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ({"status": "passed"}, "one was reported as {'name': 'one', 'status': 'passed', "),
        ({"id": "r-9"}, "one was reported as run r-9, which does not exist"),
    ],
)
def test_a_report_that_did_not_stay_true(engine: Engine, told: dict[str, object], found: str) -> None:
    [wrong] = audit(engine, [TOLD | told]).wrong
    assert wrong.startswith(found)
