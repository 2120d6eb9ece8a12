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
from retrysafe.demo.server import PROGRAM, Server, ServerFailed
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


def run_demo(
    seed: int | None, *, console: Console | None = None, live: bool = True, program: tuple[str, ...] = PROGRAM
) -> int:
    """Run, print and judge; the exit code.

    `live`: with a progress bar, if there is a terminal.  `program` is the server that Python runs.
    """
    console = console or report.make_console()
    seed = secrets.randbelow(10_000) if seed is None else seed
    workload = make_workload(seed)
    report.print_introduction(console, seed)
    try:
        with TemporaryDirectory(prefix="retrysafe-demo-") as folder:
            progress = Progress(console, live=live and console.is_interactive)
            results = run_all(workload, Path(folder), progress, program)
    except (ServerFailed, StoreError) as error:
        report.print_error(console, str(error))
        return 1
    return report.print_results(console, results, seed)


def run_all(
    workload: Workload, folder: Path, progress: Progress, program: tuple[str, ...]
) -> list[RunResult]:
    """Each run has a server, keys and a ledger of its own."""
    return [
        _run(workload, _subfolder(folder, "without"), progress, program, keys=False),
        _run(workload, _subfolder(folder, "with"), progress, program, keys=True),
        _run_with_crash(workload, _subfolder(folder, "killed"), progress, program),
    ]


def _subfolder(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def _run(
    workload: Workload, folder: Path, progress: Progress, program: tuple[str, ...], *, keys: bool
) -> RunResult:
    title = "with keys" if keys else "without keys"
    with progress.run(title, len(workload.payments)):
        with Server(folder, lease=LEASE, program=program) as server:
            received = _pay_all(workload, server, progress.paid, keys=keys)
        result = _result(title, workload, server, received, keys=keys)
    progress.finished(result)
    return result


def _run_with_crash(
    workload: Workload, folder: Path, progress: Progress, program: tuple[str, ...]
) -> RunResult:
    title = "with keys, server killed"
    hold = (f"--hold=before:{workload.uncharged.order}", f"--hold=after:{workload.charged.order}")
    with progress.run(title, len(workload.payments)):
        server = Server(folder, *hold, lease=SHORT_LEASE, program=program)
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
