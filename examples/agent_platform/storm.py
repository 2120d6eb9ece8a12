"""Agents in a storm of lost responses: `python -m examples.agent_platform.storm`.

A real server with two workers, a gateway in front of it that destroys a fifth of the responses, and agents
that retry until they know.  Then the rows in the platform's own tables are counted.
"""

import argparse
import os
import random
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import httpx
from sqlalchemy import create_engine

from examples.agent_platform.audit import Response, audit, rows
from examples.agent_platform.client import AgentClient, Unsettled
from examples.agent_platform.models import Action, Agent, Feedback, Heartbeat, Intended, Proposal, Story
from examples.agent_platform.serving import Platform
from examples.gateway import LOSSES, Proxy

AGENTS, ACTIONS = 20, 2000

KILLS = 3
"""How often a worker is killed, at equal distances."""

TOKEN_LIFETIME = "5"
"""Seconds: tokens expire several times in a storm, so that some retries come with another one than the first
attempt; and longer than a request waits on a busy machine."""

_NOTICED = 0.2
"""Seconds in which the gateway notices that the worker behind a request is gone.  Agents that go on meanwhile
may come to their end, with nothing left to kill a worker in the middle of."""

_SHOWN = 5
"""How much of what the audit found is printed: without keys it is a line for every fifth action."""


class Report(NamedTuple):
    """What happened, and what the tables say about it."""

    actions: int
    rows: int
    """What they have left in the tables, and should be one each."""
    duplicates: int
    """Rows too many."""
    requests: int
    twice: int
    """How many of them the gateway sent once more."""
    destroyed: dict[str, int]
    """Responses, by what became of them."""
    in_flight: int
    expired: int
    """Requests whose token had expired."""
    killed: int
    cut_off: int
    """Requests that were running when their worker was killed."""
    replays: int
    """Actions that an agent knows of by a replay."""
    found: list[str]
    """What does not add up, in sentences; empty if all is well."""
    seconds: float

    def lines(self) -> Iterator[str]:
        ways = ", ".join(f"{number} {way}" for way, number in self.destroyed.items())
        yield _line("actions", self.actions)
        yield _line("requests sent", self.requests, f"in {self.seconds:.1f} s")
        yield _line("sent twice by the gateway", self.twice)
        yield _line("responses destroyed", sum(self.destroyed.values()), ways)
        yield _line('409 "Request is being processed"', self.in_flight)
        yield _line("tokens expired meanwhile", self.expired)
        yield _line("workers killed", self.killed, f"in the middle of {self.cut_off} requests")
        yield _line("replays seen", self.replays)
        yield _line("rows in the tables", self.rows)
        yield _line("duplicates found", self.duplicates)
        yield from self.found[:_SHOWN]
        if len(self.found) > _SHOWN:
            yield f"… and {len(self.found) - _SHOWN} more"


def _line(what: str, number: int, more: str = "") -> str:
    return f"{what:<34}{number:>6}  {more}".rstrip()


class QuickClient(AgentClient):
    """The same, in seconds instead of minutes."""

    first_pause, longest_pause = 0.05, 1.0
    patience = 90.0


class KeylessClient(QuickClient):
    """It retries all the same, as most clients do."""

    def key_header(self, key: str) -> dict[str, str]:  # noqa: ARG002 - that is the difference
        return {}


class StormAgent:
    """Registers, and then does one thing after the other, each of them once."""

    def __init__(self, name: str, client: AgentClient, actions: int) -> None:
        self._name = name
        self._client = client
        self._actions = actions
        self._random = random.Random(name)
        self._stories: list[int] = []
        self.responses: list[Response] = []
        self.replays = 0
        self.unsettled: list[str] = []

    def run(self) -> None:
        with self._client:
            try:
                intent = f"{self._name}/0"
                self._note(Agent, intent, self._client.register(self._name, intent))
                for number in range(1, self._actions):
                    self._do(number)
            except Unsettled as error:
                self.unsettled.append(str(error))

    def _do(self, number: int) -> None:
        assert self._client.identity is not None
        intent, send = f"{self._name}/{number}", self._client.send
        match self._random.choices(("act", "heartbeat", "story", "proposal", "feedback"), (5, 1, 2, 1, 1))[0]:
            case "act":
                path = f"/api/dwellers/{self._client.identity.dweller}/act"
                self._note(Action, intent, send(path, {"intent": intent, "text": "look around"}))
            case "heartbeat":
                due = datetime(2026, 1, 1, tzinfo=UTC) + number * timedelta(hours=4)
                self._note(Heartbeat, intent, self._client.heartbeat(due.isoformat(), intent))
            case "feedback" if self._stories:
                path = f"/api/review/story/{self._random.choice(self._stories)}/feedback"
                self._note(Feedback, intent, send(path, {"intent": intent, "verdict": "approve"}))
            case "proposal":
                self._note(Proposal, intent, send("/api/proposals", {"intent": intent, "title": "a bridge"}))
            case _:
                story = self._note(
                    Story, intent, send("/api/stories", {"intent": intent, "title": "a storm"})
                )
                if story.status == 201:
                    self._stories.append(story.document["id"])

    def _note(self, table: type[Intended], intent: str, response: httpx.Response) -> Response:
        self.replays += response.headers.get("Idempotent-Replayed") == "true"
        noted = Response(table, intent, response.status_code, response.json())
        self.responses.append(noted)
        return noted


def run(
    platform: Platform, *, agents: int = AGENTS, actions: int = ACTIONS, keys: bool = True, kills: int = 0
) -> Report:
    """A storm over a platform that runs.  Each agent does as many actions as the others."""
    began, killed = time.monotonic(), len(platform.killed)
    prefix = f"storm {uuid.uuid4()}"
    client = QuickClient if keys else KeylessClient
    with Proxy(platform.port) as proxy, ThreadPoolExecutor(agents) as threads:
        storm = [
            StormAgent(f"{prefix}/{number}", client(proxy.url), actions // agents) for number in range(agents)
        ]
        running = [threads.submit(agent.run) for agent in storm]
        for part in range(1, kills + 1):
            _wait_for(actions * part // (kills + 1), storm, running)
            _kill_worker(platform, proxy, running)
        for one in running:
            one.result()
    seconds = time.monotonic() - began
    responses = [response for agent in storm for response in agent.responses]
    engine = create_engine(platform.database)
    counted = rows(engine, prefix)
    found = [text for agent in storm for text in agent.unsettled] + audit(engine, responses, prefix)
    engine.dispose()
    if len(counted) != actions:
        found.append(f"{actions} actions have left rows for {len(counted)} intents")
    return Report(
        actions=actions,
        rows=counted.total(),
        duplicates=counted.total() - len(counted),
        requests=proxy.counts["requests"],
        twice=proxy.counts["sent twice"],
        destroyed={loss: proxy.counts[loss] for loss in LOSSES},
        in_flight=proxy.counts["status 409"],
        expired=proxy.counts["status 401"],
        killed=len(platform.killed) - killed,
        cut_off=proxy.counts["no response"],
        replays=sum(agent.replays for agent in storm),
        found=found,
        seconds=seconds,
    )


def _wait_for(actions: int, storm: list[StormAgent], running: "list[Future[None]]") -> None:
    """Until so many are done; or all of them, if an agent has given up."""
    while sum(len(agent.responses) for agent in storm) < actions and not all(one.done() for one in running):
        time.sleep(0.01)


def _kill_worker(platform: Platform, proxy: Proxy, running: "list[Future[None]]") -> None:
    """In the middle of a request: one that was idle is not worth killing, and another one is killed."""
    before = proxy.counts["no response"]
    while proxy.counts["no response"] == before and not all(one.done() for one in running):
        platform.kill_worker()
        until = time.monotonic() + _NOTICED
        while proxy.counts["no response"] == before and time.monotonic() < until:
            time.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.agent_platform.storm")
    parser.add_argument("--agents", type=int, default=AGENTS)
    parser.add_argument("--actions", type=int, default=ACTIONS, help="of all agents together")
    parser.add_argument("--without-keys", action="store_true", help="agents retry, and send no keys")
    parser.add_argument("--kill", action="store_true", help=f"kill a worker {KILLS} times in between")
    given = parser.parse_args()
    if given.agents < 1 or given.actions < 1 or given.actions % given.agents:
        parser.error(
            f"--agents {given.agents} --actions {given.actions}: expected as many actions for each agent, "
            "and at least one"
        )
    with tempfile.TemporaryDirectory() as folder:
        database = os.environ.get("PLATFORM_DATABASE", f"sqlite:///{folder}/platform.db")
        with Platform(database, Path(folder), PLATFORM_TOKEN_LIFETIME=TOKEN_LIFETIME) as platform:
            report = run(
                platform,
                agents=given.agents,
                actions=given.actions,
                keys=not given.without_keys,
                kills=KILLS if given.kill else 0,
            )
    print(*report.lines(), sep="\n")
    sys.exit(bool(report.found))


if __name__ == "__main__":
    main()
