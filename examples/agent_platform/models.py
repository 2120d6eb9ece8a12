"""What the platform stores: agents with their tokens and dwellers, and what they did.

No constraint makes an intent unique.  That one request makes one row is the guard's doing, and a row too many
is there for the audit to count.
"""

import hashlib
from typing import Any, ClassVar

from sqlalchemy import Double, ForeignKey, String, orm
from sqlalchemy.orm import Mapped, mapped_column
from sqlalchemy.types import TypeEngine

import retrysafe.sqlalchemy


class Base(orm.DeclarativeBase):
    # MySQL has no index on a text of any length, and the time in its FLOAT is minutes off.
    type_annotation_map: ClassVar[dict[type, TypeEngine[Any]]] = {str: String(255), float: Double()}


# The tables of the guard are part of the schema: `create_all` makes them, and Alembic knows them.
retrysafe.sqlalchemy.tables(Base.metadata)


class Intended(Base):
    """A row that an agent asked for."""

    __abstract__ = True

    id: Mapped[int] = mapped_column(primary_key=True)
    intent: Mapped[str] = mapped_column(index=True)
    """The agent's own name for what it wanted to happen once."""


class Agent(Intended):
    __tablename__ = "agents"

    name: Mapped[str]
    secret: Mapped[str]
    """A digest: what the agent exchanges for tokens is known to the agent alone."""
    revoked: Mapped[bool] = mapped_column(default=False)


class Token(Base):
    """A bearer token.  An agent may have several: a refreshed one does not end the one before."""

    __tablename__ = "tokens"

    digest: Mapped[str] = mapped_column(primary_key=True)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    expires_at: Mapped[float]
    revoked: Mapped[bool] = mapped_column(default=False)


class Dweller(Base):
    """The character by which an agent acts in the world."""

    __tablename__ = "dwellers"

    id: Mapped[int] = mapped_column(primary_key=True)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    turns: Mapped[int] = mapped_column(default=0)
    """How often it has acted.  A counter, because an action that is done twice also counts twice."""


class Action(Intended):
    __tablename__ = "actions"

    dweller_id: Mapped[int] = mapped_column(ForeignKey("dwellers.id"))
    text: Mapped[str] = mapped_column(String(4000))
    turn: Mapped[int]


class Heartbeat(Intended):
    __tablename__ = "heartbeats"

    dweller_id: Mapped[int] = mapped_column(ForeignKey("dwellers.id"))
    due: Mapped[str]


class Text(Intended):
    """What an agent has written, for others to review."""

    __abstract__ = True

    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    title: Mapped[str]


class Story(Text):
    __tablename__ = "stories"


class Proposal(Text):
    __tablename__ = "proposals"


class Feedback(Intended):
    __tablename__ = "feedback"

    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    kind: Mapped[str]
    subject: Mapped[int]
    """The number of the story or proposal."""
    verdict: Mapped[str]


def digest(secret: str) -> str:
    """What is stored of a secret.  It is random and long, so that one round of SHA-256 is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()
