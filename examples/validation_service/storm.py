"""Runs, jobs and callbacks in a storm: `python -m examples.validation_service.storm`.

Clients submit runs and jobs call back through gateways that destroy responses and send requests twice, while
workers of the service, its runner and its jobs are killed.  Then findings, statuses, counts and receipts are
audited.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import django
from httpx import HTTPError

from examples.gateway import Proxy
from examples.validation_service.client import Unsettled, ValidationClient
from examples.validation_service.environment import ORGANISATIONS, demo_token
from examples.validation_service.jobs.checks import Check
from examples.validation_service.serving import ValidationService

if TYPE_CHECKING:
    from examples.validation_service.audit import Tally  # which needs Django's settings

RUNS, KILLS, SEED = 40, 12, 1

LOSE, REPEAT = 0.25, 0.1
"""Shares of the responses that the gateways destroy, and of the requests that they send twice."""

AT_ONCE = 6
"""Clients.  Each submits a run, waits until it has ended, and submits the next one."""

PATIENCE = 120.0
"""Seconds for whatever is waited for: far more than it takes, on a busy machine too."""

Victim = Literal["worker", "job", "runner"]

_SHOWN = 8
"""How much of what the audit found is printed: without receipts it is two lines for every other run."""


class KeylessClient(ValidationClient):
    """It retries all the same, and every attempt is a new run."""

    def retry_key(self, key: str) -> str:  # noqa: ARG002 - that is the difference
        return self.new_key()


class Report(NamedTuple):
    """What happened, and what the tables say about it."""

    runs: int
    requests: int
    requests_twice: int
    responses_lost: int
    replays: int
    callbacks: int
    callbacks_twice: int
    acknowledgements_lost: int
    """Without those that were cut in the middle: their status has arrived, and is all that a job asks for."""
    cut_off: int
    """Requests and callbacks whose worker was killed meanwhile."""
    killed: dict[Victim, int]
    tally: "Tally"
    wrong: list[str]
    """What does not add up, in sentences; empty if all is well."""
    seconds: float

    def lines(self) -> Iterator[str]:
        lost = f"{self.requests_twice} of them sent twice, {self.responses_lost} responses lost"
        unacknowledged = (
            f"{self.callbacks_twice} of them sent twice, {self.acknowledgements_lost} acknowledgements lost"
        )
        killed = ", ".join(f"{number} {victim}s" for victim, number in self.killed.items())
        yield _line("runs wanted", self.runs, f"with {len(Check)} jobs each, in {self.seconds:.1f} s")
        yield _line("requests of clients", self.requests, lost)
        yield _line("callbacks of jobs", self.callbacks, unacknowledged)
        yield _line("killed", sum(self.killed.values()), killed)
        yield _line("cut off", self.cut_off, "requests and callbacks, whose worker was killed")
        yield _line("replays seen by clients", self.replays)
        yield _line("runs in the table", self.tally.runs)
        yield _line("findings in the table", self.tally.findings)
        yield _line("receipts", self.tally.receipts, f"with {self.tally.deliveries} deliveries noted")
        yield _line("wrong", len(self.wrong))
        yield from self.wrong[:_SHOWN]
        if len(self.wrong) > _SHOWN:
            yield f"… and {len(self.wrong) - _SHOWN} more"


def _line(what: str, number: int, more: str = "") -> str:
    return f"{what:<26}{number:>6}  {more}".rstrip()


class Storm:
    """Over a service that runs, until each run has ended and no job is left."""

    def __init__(self, service: ValidationService, clients: Proxy, *, seed: int, keys: bool) -> None:
        self._service = service
        self._clients = clients
        self._random = Random(seed)
        self._seed = seed
        self._client = ValidationClient if keys else KeylessClient
        self._name = f"storm {uuid.uuid4().hex[:8]}"
        self._numbers: SimpleQueue[int] = SimpleQueue()
        # Daemons: a storm that is interrupted does not wait for them.
        self._threads = [Thread(target=self._submit_all, daemon=True) for _ in range(AT_ONCE)]
        self.killed: dict[Victim, int] = dict.fromkeys(get_args(Victim), 0)
        self.reported: list[dict[str, Any]] = []
        self.unsettled: list[str] = []
        self.replays = 0

    def run(self, runs: int, kills: int) -> None:
        order: list[Victim] = list(islice(cycle(get_args(Victim)), kills))
        self._random.shuffle(order)
        for number in range(runs):
            self._numbers.put(number)
        for thread in self._threads:
            thread.start()
        for part, victim in enumerate(order, start=1):
            self._wait_for(runs * len(Check) * part // (kills + 1))
            self._kill(victim)
        _wait("the end of all clients", self._is_over)
        # Runs of which no client knows have jobs, too; and a job may still be sending what has arrived.
        _wait("the end of all jobs", lambda: _count(finished=False) == 0 and self._is_quiet())

    def _submit_all(self) -> None:
        with suppress(Empty):
            while True:
                self._submit(self._numbers.get_nowait())

    def _submit(self, number: int) -> None:
        token = demo_token(ORGANISATIONS[number % len(ORGANISATIONS)])
        with self._client(self._service.url, token, submit_to=self._clients.url) as client:
            try:
                run = client.submit(f"{self._name}/{number}", readings(Random(f"{self._seed}/{number}")))
                self.reported.append(client.wait(run))
            except (Unsettled, HTTPError) as error:
                self.unsettled.append(str(error))
            self.replays += client.replays

    def _wait_for(self, executions: int) -> None:
        """Until so many have called back; or all clients have given up."""
        _wait("progress", lambda: _count(finished=True) >= executions or self._is_over())

    def _kill(self, victim: Victim) -> None:
        arrived = self._arrived()
        _wait(f"a {victim} to be killed", lambda: self._strike(victim, arrived) or self._is_over(), 0.002)

    def _strike(self, victim: Victim, arrived: int) -> bool:
        """SIGKILL for one, if there is one that has something to do."""
        if victim == "worker":
            struck = self._arrived() > arrived  # it may be at work on what has just arrived
            if struck:
                self._service.kill_worker()
        elif victim == "job":
            struck = self._service.kill_job(self._random)
        else:
            struck = self._service.kill_runner()
        self.killed[victim] += struck
        return struck

    def _arrived(self) -> int:
        return self._clients.counts["requests"] + self._service.callbacks.counts["requests"]

    def _is_over(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def _is_quiet(self) -> bool:
        return not self._service.spooled() and not self._service.jobs()


def readings(random: Random) -> list[float | None]:
    """Two days of a meter, of which every other one has faults."""
    found: list[float | None] = [round(random.uniform(20, 60), 1) for _ in range(48)]
    for _ in range(random.choice((0, 0, 4, 8))):
        found[random.randrange(48)] = random.choice((None, -1.0, 120.0, 99.0))
    if random.random() < 0.25:
        hangs = random.randrange(40)
        found[hangs : hangs + 6] = [42.0] * 6
    return found


def run(
    service: ValidationService,
    *,
    runs: int = RUNS,
    kills: int = KILLS,
    seed: int = SEED,
    keys: bool = True,
) -> Report:
    _configure(service.database)
    from examples.validation_service.audit import audit

    began = time.monotonic()
    callbacks = service.callbacks
    with Proxy(service.port, lose=LOSE, repeat=REPEAT, seed=seed) as clients:
        storm = Storm(service, clients, seed=seed, keys=keys)
        storm.run(runs, kills)
    tally = audit(storm.reported)
    wrong = storm.unsettled + tally.wrong
    if len(storm.reported) != runs:
        wrong.append(f"{len(storm.reported)} of {runs} runs were reported to their clients")
    return Report(
        runs=runs,
        requests=clients.counts["requests"],
        requests_twice=clients.counts["sent twice"],
        responses_lost=clients.destroyed(),
        replays=storm.replays,
        callbacks=callbacks.counts["requests"],
        callbacks_twice=callbacks.counts["sent twice"],
        acknowledgements_lost=callbacks.destroyed() - callbacks.counts["cut within"],
        cut_off=clients.counts["no response"] + callbacks.counts["no response"],
        killed=storm.killed,
        tally=tally,
        wrong=wrong,
        seconds=time.monotonic() - began,
    )


def _configure(database: str) -> None:
    """Have the service's models, to look into its tables."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.validation_service.settings")
    os.environ["VALIDATION_DATABASE"] = database
    django.setup()


def _count(*, finished: bool) -> int:
    from examples.validation_service.validations.models import Execution

    return Execution.objects.filter(finished=finished).count()


def _wait(what: str, condition: Callable[[], bool], every: float = 0.02) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"the storm waits for {what}, which does not come within {PATIENCE:g} s")
        time.sleep(every)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.validation_service.storm")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--kills", type=int, default=KILLS, help="of workers, jobs and the runner together")
    parser.add_argument("--seed", type=int, default=SEED, help="of readings, losses and kills")
    parser.add_argument("--without-receipts", action="store_true", help="callbacks have no ids")
    parser.add_argument("--without-keys", action="store_true", help="a new key for every attempt")
    given = parser.parse_args()
    if given.runs < 1 or given.kills < 0:
        parser.error(f"--runs {given.runs} --kills {given.kills}: expected at least 1, and at least 0")
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(1))  # the processes end with the `with`
    with (
        tempfile.TemporaryDirectory() as folder,
        Proxy(0, lose=LOSE, repeat=REPEAT, seed=given.seed) as callbacks,
        ValidationService(
            os.environ.get("VALIDATION_DATABASE", f"sqlite:///{folder}/validation.db"),
            Path(folder),
            callbacks,
            VALIDATION_CALLBACK_IDS="no" if given.without_receipts else "yes",
        ) as service,
    ):
        report = run(
            service, runs=given.runs, kills=given.kills, seed=given.seed, keys=not given.without_keys
        )
    print(*report.lines(), sep="\n")
    sys.exit(bool(report.wrong))


if __name__ == "__main__":
    main()
