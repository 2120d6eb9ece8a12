"""Control through failures: `python -m examples.workflow_control.storm`.

Every report is started, cancelled, resumed and forked by a client that loses a third of the responses and
retries, while the service is killed and started again.  Then DBOS's own tables are counted.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import httpx

from examples.workflow_control.audit import Effects, approve_all, count, keep_journal
from examples.workflow_control.client import ControlClient, Unsettled
from examples.workflow_control.serving import TOKEN, Service

REPORTS, KILLS = 24, 3

LOSE = 1 / 3
"""The share of responses that the client does not get."""

AT_ONCE = 6


class Lossy(httpx.BaseTransport):
    """A network that delivers every request, and loses responses."""

    def __init__(self, seed: int) -> None:
        self._inner = httpx.HTTPTransport()
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self.sent = 0
        self.lost = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            self.sent += 1
            loses = self._random.random() < LOSE
        response = self._inner.handle_request(request)
        if not loses:
            return response
        with self._lock:
            self.lost += 1
        response.read()
        raise httpx.ReadError("the response was lost on its way", request=request)

    def close(self) -> None:
        self._inner.close()


class KeylessClient(ControlClient):
    """It retries all the same, and every attempt is a new intent."""

    def retry_key(self, key: str) -> str:  # noqa: ARG002 - that is the difference
        return self.new_key()


class Report(NamedTuple):
    """What happened, and what DBOS's tables say about it."""

    reports: int
    requests: int
    lost: int
    kills: int
    replays: int
    effects: Effects
    unsettled: list[str]
    """Actions of which a client does not know whether they were done."""
    seconds: float

    @property
    def wanted(self) -> Effects:
        """Each report once; it is delivered by the workflow and by its fork."""
        each = self.reports
        return Effects(started=each, cancelled=each, resumed=each, forked=each, delivered=2 * each)

    @property
    def is_well(self) -> bool:
        return self.effects == self.wanted and not self.unsettled

    def lines(self) -> Iterator[str]:
        yield _line("reports", self.reports)
        yield _line("requests sent", self.requests, f"in {self.seconds:.1f} s")
        yield _line("responses lost", self.lost)
        yield _line("service killed", self.kills, "times")
        yield _line("replays seen", self.replays)
        for name, found, wanted in zip(Effects._fields, self.effects, self.wanted, strict=True):
            yield _line(f"workflows {name}", found, "" if found == wanted else f"instead of {wanted}")
        yield from self.unsettled
        yield "each action took effect once" if self.is_well else "NOT each action took effect once"


def _line(what: str, number: int, more: str = "") -> str:
    return f"{what:<24}{number:>6}  {more}".rstrip()


def run(service: Service, *, reports: int = REPORTS, kills: int = KILLS, keys: bool = True) -> Report:
    began = time.monotonic()
    keep_journal(service.database)
    network = Lossy(seed=1)
    client_type = ControlClient if keys else KeylessClient
    unsettled: list[str] = []
    done = 0

    with client_type(service.url, TOKEN, network) as client, ThreadPoolExecutor(AT_ONCE) as threads:

        def control(number: int) -> None:
            nonlocal done
            try:
                workflow = client.start("publish", report=f"report {number}")
                client.cancel(workflow)
                client.resume(workflow)
                client.fork(workflow, 2)
            except Unsettled as error:
                unsettled.append(str(error))
            done += 1

        running = [threads.submit(control, number) for number in range(reports)]
        for part in range(1, kills + 1):
            while done < reports * part // (kills + 1):
                time.sleep(0.01)
            service.kill()
        for one in running:
            one.result()
    seconds = time.monotonic() - began
    approve_all(service.database)
    effects = count(service.database, service.deliveries)
    return Report(
        reports, network.sent, network.lost, service.kills, client.replays, effects, unsettled, seconds
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.workflow_control.storm")
    parser.add_argument("--reports", type=int, default=REPORTS)
    parser.add_argument("--kills", type=int, default=KILLS, help="how often the service is killed")
    parser.add_argument("--without-keys", action="store_true", help="a new key for every attempt")
    given = parser.parse_args()
    if given.reports < 1 or given.kills < 0:
        parser.error(f"--reports {given.reports} --kills {given.kills}: expected at least 1, and at least 0")
    with tempfile.TemporaryDirectory() as folder, Service(Path(folder)) as service:
        report = run(service, reports=given.reports, kills=given.kills, keys=not given.without_keys)
    print(*report.lines(), sep="\n")
    sys.exit(not report.is_well)


if __name__ == "__main__":
    main()
