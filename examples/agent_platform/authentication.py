"""Bearer tokens, as a dependency: it is asked before the key is claimed, and before each replay.

A registered agent has a secret for as long as it exists, and exchanges it for tokens, which expire.
"""

import os
import secrets
import time
from typing import Annotated, NamedTuple

from fastapi import Depends, HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import orm, select

from examples.agent_platform.database import Session
from examples.agent_platform.models import Agent, Token, digest

LIFETIME = float(os.environ.get("PLATFORM_TOKEN_LIFETIME", "3600"))
"""Seconds for which a token is good."""

Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]


class Caller(NamedTuple):
    """The agent that sent the request."""

    id: int
    token: str
    """The digest of the token that it was sent with."""


def authenticate(credentials: Credentials) -> Caller:
    if credentials is None:
        raise unauthorised()
    token = digest(credentials.credentials)
    # In a session of its own, which has given its connection back when the endpoint asks for one.
    with Session() as session:
        found = session.execute(
            select(Token.expires_at, Token.revoked, Agent.id, Agent.revoked.label("agent_revoked"))
            .join(Agent)
            .where(Token.digest == token)
        ).one_or_none()
    # RFC 6750 section 3.1: expired, revoked and unknown tokens are all `invalid_token`.
    if found is None or found.revoked or found.expires_at <= time.time():
        raise unauthorised("invalid_token")
    if found.agent_revoked:
        raise HTTPException(403, "this agent was revoked")
    return Caller(found.id, token)


def unauthorised(error: str | None = None) -> HTTPException:
    challenge = f'Bearer error="{error}"' if error else "Bearer"
    return HTTPException(401, "a valid token is needed", {"WWW-Authenticate": challenge})


def issue(session: orm.Session, agent: Agent) -> str:
    """One more token for an agent."""
    token = secrets.token_urlsafe()
    session.add(Token(digest=digest(token), agent_id=agent.id, expires_at=time.time() + LIFETIME))
    return token
