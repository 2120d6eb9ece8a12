"""Revokes an agent, by its number: `python -m examples.agent_platform.revoke 7`."""

import argparse

from sqlalchemy import orm

from examples.agent_platform.models import Agent


def revoke(session: orm.Session, number: int) -> None:
    """From now on it gets 403, for what it did before too."""
    agent = session.get(Agent, number)
    if agent is None:
        raise SystemExit(f"there is no agent {number}")
    agent.revoked = True
    session.commit()


def main() -> None:
    from examples.agent_platform.database import Session

    parser = argparse.ArgumentParser(prog="python -m examples.agent_platform.revoke")
    parser.add_argument("agent", type=int, help="its number")
    with Session() as session:
        revoke(session, parser.parse_args().agent)


if __name__ == "__main__":
    main()
