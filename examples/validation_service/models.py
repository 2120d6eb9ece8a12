"""What the service stores: organisations with their counts, runs, executions of checks, and findings.

No constraint makes a run or a finding unique.  That a request makes one run, and a callback its findings
once, is the guards' doing; what is too many is there for the audit to count.
"""

from sqlalchemy import JSON, ForeignKey, Text, orm
from sqlalchemy.orm import Mapped, mapped_column

import retrysafe.sqlalchemy


class Base(orm.DeclarativeBase):
    pass


# The tables of the guards are part of the schema: `create_all` makes them, and Alembic knows them.
retrysafe.sqlalchemy.tables(Base.metadata)


class Organisation(Base):
    """A client, with the summary counts of all its runs."""

    __tablename__ = "organisations"

    name: Mapped[str] = mapped_column(primary_key=True)
    runs: Mapped[int] = mapped_column(default=0)
    finished: Mapped[int] = mapped_column(default=0)
    errors: Mapped[int] = mapped_column(default=0)
    warnings: Mapped[int] = mapped_column(default=0)


class Run(Base):
    """Readings that a client wants validated, by all checks."""

    __tablename__ = "runs"

    id: Mapped[str] = mapped_column(primary_key=True)
    organisation: Mapped[str] = mapped_column(ForeignKey("organisations.name"), index=True)
    name: Mapped[str]
    """The client's own, for what it wanted to happen once."""
    readings: Mapped[list[float | None]] = mapped_column(JSON)
    awaited: Mapped[int]
    """How many checks have not called back."""
    status: Mapped[str] = mapped_column(default="running")
    """`passed` or `failed`, once all checks have called back."""
    errors: Mapped[int] = mapped_column(default=0)
    warnings: Mapped[int] = mapped_column(default=0)


class Execution(Base):
    """One check of a run, as a job.  Written with the run, so that its launch is not lost with a process."""

    __tablename__ = "executions"

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), index=True)
    check: Mapped[str]
    envelope: Mapped[str] = mapped_column(Text)
    """What the job is given, the same at each launch: so its callback has the same id, too."""
    finished: Mapped[bool] = mapped_column(default=False, index=True)
    """Whether it has called back.  Until then there has to be a job for it."""


class Finding(Base):
    __tablename__ = "findings"

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), index=True)
    check: Mapped[str]
    position: Mapped[int]
    """Of the reading, counted from 0."""
    rule: Mapped[str]
    severity: Mapped[str]
