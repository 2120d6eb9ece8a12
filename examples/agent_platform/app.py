"""A platform on which agents act.  Its handlers are written as if every request arrived once."""

import secrets
from typing import Annotated, Literal

from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import orm, select, update

from examples.agent_platform import authentication
from examples.agent_platform.authentication import Caller, authenticate, issue
from examples.agent_platform.database import get_session, guard
from examples.agent_platform.models import (
    Action,
    Agent,
    Dweller,
    Feedback,
    Heartbeat,
    Intended,
    Proposal,
    Story,
    Token,
    digest,
)
from retrysafe import scopes
from retrysafe.fastapi import idempotent, protect

app = FastAPI(title="A platform for agents")
protect(app, guard)

Session = Annotated[orm.Session, Depends(get_session)]
Authenticated = Annotated[Caller, Depends(authenticate)]


class Intention(BaseModel):
    """What all requests have: the agent's own name for what it wants to happen once."""

    intent: Annotated[str, Field(min_length=1, max_length=200)]


class Stored(BaseModel):
    """What all responses have: the row that was written."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    intent: str


class Registration(Intention):
    name: Annotated[str, Field(min_length=1)]


class Registered(Stored):
    dweller: int
    secret: str


class Login(BaseModel):
    agent: int
    secret: str


class Access(BaseModel):
    token: str
    expires_in: float


class Act(Intention):
    text: Annotated[str, Field(min_length=1)]


class Acted(Stored):
    turn: int


class Beat(Intention):
    due: Annotated[str, Field(min_length=1)]


class Draft(Intention):
    title: Annotated[str, Field(min_length=1)]


class Review(Intention):
    verdict: Literal["approve", "reject"]


# There is no agent yet, so its keys are public: any client that knows one gets the response, with the secret.
# They need 16 characters that cannot be guessed, and the response is stored no longer than retries need it.
@app.post("/api/auth/agent", status_code=201)
@idempotent(guard, scope=scopes.public(), retention="1h")
def register(registration: Registration, session: Session) -> Registered:
    """An agent, with the dweller that it acts by."""
    secret = secrets.token_urlsafe()
    agent = Agent(name=registration.name, intent=registration.intent, secret=digest(secret))
    session.add(agent)
    session.flush()
    dweller = Dweller(agent_id=agent.id)
    session.add(dweller)
    session.commit()
    return Registered(id=agent.id, intent=agent.intent, dweller=dweller.id, secret=secret)


# Not protected: a token too many does no harm, and a response that is a secret is better not stored.
@app.post("/api/auth/token", status_code=201)
def log_in(login: Login, session: Session) -> Access:
    """A new token, for an agent that knows its secret."""
    agent = session.get(Agent, login.agent)
    if agent is None or not secrets.compare_digest(agent.secret, digest(login.secret)):
        raise authentication.unauthorised()
    if agent.revoked:
        raise HTTPException(403, "this agent was revoked")
    token = issue(session, agent)
    session.commit()
    return Access(token=token, expires_in=authentication.LIFETIME)


@app.delete("/api/auth/token", status_code=204)
def log_out(agent: Authenticated, session: Session) -> None:
    """Revoke the token that the request was sent with."""
    session.execute(update(Token).where(Token.digest == agent.token).values(revoked=True))
    session.commit()


@app.post("/api/dwellers/{dweller}/act", status_code=201)
@idempotent(guard)
def act(dweller: int, wanted: Act, agent: Authenticated, session: Session) -> Acted:
    """The dweller does something, in its next turn."""
    mine = update(Dweller).where(Dweller.id == dweller, Dweller.agent_id == agent.id)
    # MySQL returns no rows of an update: they are counted, and the locked row is read.
    if session.connection().execute(mine.values(turns=Dweller.turns + 1)).rowcount == 0:
        raise HTTPException(404, "you have no such dweller")
    turn = session.scalars(select(Dweller.turns).where(Dweller.id == dweller)).one()
    action = Action(dweller_id=dweller, text=wanted.text, turn=turn, intent=wanted.intent)
    session.add(action)
    session.commit()
    return Acted.model_validate(action)


@app.post("/api/dwellers/{dweller}/heartbeat", status_code=201)
@idempotent(guard)
def beat(dweller: int, wanted: Beat, agent: Authenticated, session: Session) -> Stored:
    """Agents send one for their dweller every four hours."""
    owner = session.scalar(select(Dweller.agent_id).where(Dweller.id == dweller))
    if owner != agent.id:
        raise HTTPException(404, "you have no such dweller")
    return store(session, Heartbeat(dweller_id=dweller, due=wanted.due, intent=wanted.intent))


@app.post("/api/stories", status_code=201)
@idempotent(guard)
def tell(wanted: Draft, agent: Authenticated, session: Session) -> Stored:
    return store(session, Story(agent_id=agent.id, title=wanted.title, intent=wanted.intent))


@app.post("/api/proposals", status_code=201)
@idempotent(guard)
def propose(wanted: Draft, agent: Authenticated, session: Session) -> Stored:
    return store(session, Proposal(agent_id=agent.id, title=wanted.title, intent=wanted.intent))


@app.post("/api/review/{kind}/{number}/feedback", status_code=201)
@idempotent(guard)
def review(
    kind: Literal["story", "proposal"], number: int, wanted: Review, agent: Authenticated, session: Session
) -> Stored:
    subject = session.get(Story if kind == "story" else Proposal, number)
    if subject is None:
        raise HTTPException(404, f"there is no such {kind}")
    return store(
        session,
        Feedback(agent_id=agent.id, kind=kind, subject=number, verdict=wanted.verdict, intent=wanted.intent),
    )


def store(session: orm.Session, row: Intended) -> Stored:
    session.add(row)
    session.commit()  # provisional: it becomes real together with the response
    return Stored.model_validate(row)
