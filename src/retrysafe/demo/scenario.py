"""The three runs of the demo: without keys, with keys, and with keys while the server is killed.

The customers, what they pay and the faults that they meet are the same in all three.
"""

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from rich.console import Console

from retrysafe.demo import report
from retrysafe.demo.client import Client, Paid, Payment, Refused, Stopped, Workload, make_workload
from retrysafe.demo.crash import Crash
from retrysafe.demo.ledger import reconcile
from retrysafe.demo.network import bad_network
from retrysafe.demo.report import Progress, RunResult
from retrysafe.demo.server import PROGRAM, Server, ServerFailed, new_shop
from retrysafe.demo.signals import POLL_INTERVAL, raise_if_stopped
from retrysafe.errors import StoreError

CONCURRENCY = 16
"""Customers who pay at the same time: enough to get in each other's way, few enough for two busy cores."""

LEASE, SHORT_LEASE = 30.0, 1.5
"""Seconds until a dead server's payments count as unknown: the default, and one that a demo can wait for."""

RUN_TIMEOUT = 20.0
"""Seconds for one run.  It takes three; a customer without a receipt by then is reported as a failure."""

OnProgress = Callable[[int], None]


class Received(NamedTuple):
    """What the customers of one run received, before it is compared with the ledger."""

    sent: int
    unanswered: int
    receipts: dict[str, list[str]]
    refused: tuple[str, ...]
    seconds: float


class Setting(NamedTuple):
    """Where a demo takes place: a folder, a store besides if one was given, the server that Python runs."""

    folder: Path
    store: str | None = None
    shop: str | None = None
    """What all keys in that store have in their scope."""
    program: tuple[str, ...] = PROGRAM

    def of_run(self, name: str) -> "Setting":
        """Each run has a server, keys and a ledger of its own."""
        (self.folder / name).mkdir()
        shop = None if self.shop is None else f"{self.shop}-{name}"
        return self._replace(folder=self.folder / name, shop=shop)

    def server(self, *options: str, lease: float) -> Server:
        return Server(
            self.folder, *options, lease=lease, store=self.store, shop=self.shop, program=self.program
        )


def run_demo(
    seed: int | None,
    *,
    store: str | None = None,
    console: Console | None = None,
    live: bool = True,
    program: tuple[str, ...] = PROGRAM,
) -> int:
    """Run, print and judge; the exit code.

    `live`: with a progress bar, if there is a terminal.  `program` is the server that Python runs.
    """
    console = console or report.make_console()
    seed = secrets.randbelow(10_000) if seed is None else seed
    workload = make_workload(seed)
    report.print_introduction(console, seed)
    try:
        shop = None if store is None else new_shop(store)
        if shop is not None:
            report.print_shop(console, shop)
        with TemporaryDirectory(prefix="retrysafe-demo-") as folder:
            progress = Progress(console, live=live and console.is_interactive)
            results = run_all(workload, Setting(Path(folder), store, shop, program), progress)
    except (ServerFailed, StoreError) as error:
        report.print_error(console, str(error))
        return 1
    return report.print_results(console, results, seed)


def run_all(workload: Workload, setting: Setting, progress: Progress) -> list[RunResult]:
    return [
        _run(workload, setting.of_run("without"), progress, keys=False),
        _run(workload, setting.of_run("with"), progress, keys=True),
        _run_with_crash(workload, setting.of_run("killed"), progress),
    ]


def _run(workload: Workload, setting: Setting, progress: Progress, *, keys: bool) -> RunResult:
    title = "with keys" if keys else "without keys"
    with progress.run(title, len(workload.payments)):
        with setting.server(lease=LEASE) as server:
            received = _pay_all(workload, server, progress.paid, keys=keys)
        result = _result(title, workload, server, received, keys=keys)
    progress.finished(result)
    return result


def _run_with_crash(workload: Workload, setting: Setting, progress: Progress) -> RunResult:
    title = "with keys, server killed"
    hold = (f"--hold=before:{workload.uncharged.order}", f"--hold=after:{workload.charged.order}")
    with progress.run(title, len(workload.payments)):
        server = setting.server(*hold, lease=SHORT_LEASE)
        with closing(Crash(server, workload, progress.log)) as crash:

            def on_progress(paid: int) -> None:
                progress.paid(paid)
                crash.step(paid)

            with server:
                received = _pay_all(workload, server, on_progress, keys=True)
            result = _result(title, workload, server, received, keys=True)
            result = result._replace(killed=True, settled=tuple(crash.settled), unsettled=crash.unsettled())
    progress.finished(result)
    return result


def _pay_all(workload: Workload, server: Server, on_progress: OnProgress, *, keys: bool) -> Received:
    started = time.monotonic()
    stop = threading.Event()
    with bad_network(server.port, workload.faults.fault) as port, ThreadPoolExecutor(CONCURRENCY) as pool:
        client = Client(port, keys=keys, stop=stop)
        clicks = {
            pool.submit(client.pay, payment, click): payment
            for payment in workload.payments
            for click in range(1, payment.clicks + 1)
        }
        try:
            _wait_for(clicks, started + RUN_TIMEOUT, on_progress)
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
    paid: list[Paid] = []
    receipts: dict[str, list[str]] = {}
    refused: list[str] = []
    for click, payment in clicks.items():
        try:
            one = click.result()
        except Refused as refusal:
            refused.append(str(refusal))
        except (Stopped, CancelledError):
            refused.append(f"{payment.order}: no response within {RUN_TIMEOUT:.0f} seconds")
        else:
            paid.append(one)
            receipts.setdefault(payment.order, []).append(one.receipt)
    return Received(
        sum(one.sent for one in paid),
        sum(one.unanswered for one in paid),
        receipts,
        tuple(refused),
        time.monotonic() - started,
    )


def _wait_for(clicks: Mapping[Future[Paid], Payment], deadline: float, on_progress: OnProgress) -> None:
    """Call `on_progress` with the number of finished payments, until all are or the deadline has passed."""
    pending = set(clicks)
    while pending and time.monotonic() < deadline:
        raise_if_stopped()
        _, pending = wait(pending, timeout=POLL_INTERVAL, return_when=FIRST_COMPLETED)
        unpaid = {clicks[click].order for click in pending}
        on_progress(len({payment.order for payment in clicks.values()} - unpaid))


def _result(title: str, workload: Workload, server: Server, received: Received, *, keys: bool) -> RunResult:
    """Only once the server has ended: a request that was still running in it has then finished too."""
    return RunResult(
        title,
        keys,
        len(workload.payments),
        received.sent,
        received.unanswered,
        server.counts(),
        reconcile(workload.payments, received.receipts, server.ledger.charges()),
        received.refused,
        received.seconds,
    )
