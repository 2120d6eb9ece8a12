"""`retrysafe demo --serve`: the payments API alone, with lines to paste, until Ctrl-C.

It is its own supervisor: one of the lines kills the server, and it is started again on the same port.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from retrysafe.demo.report import command_line, make_console
from retrysafe.demo.server import Server, ServerFailed
from retrysafe.demo.signals import PAUSE, stop_if_asked

CAKE, TEA = 5.0, 6.0
"""Seconds that paying for them takes: time enough to send another request, or to kill the server."""

LEASE = 10.0
"""Seconds: long enough to see the 409 of a payment that may still run, short enough to wait for its end."""


class Try(NamedTuple):
    """Something to try: why, and what to paste."""

    why: str
    command: str


def tries(server: Server) -> Iterator[Try]:
    api = f"http://127.0.0.1:{server.port}"

    def pay(form: str, key: str | None, *, flags: str = "-i") -> str:
        key_header = f"-H 'Idempotency-Key: {key}' " if key else ""
        return f"curl {flags} {api}/payments -H 'X-Customer: ada' \\\n     {key_header}-d '{form}'"

    coffee, cake, tea = (
        "order=coffee&cents=320",
        f"order=cake&cents=2850&seconds={CAKE:g}",
        f"order=tea&cents=290&seconds={TEA:g}",
    )
    pid_file = shlex.quote(str(server.folder / "server.pid"))
    operate = f"--store {shlex.quote(server.store)}"
    tool = command_line(elsewhere=True)

    yield Try("Pay for a coffee.", pay(coffee, "coffee-order-1"))
    yield Try(
        "The answer got lost? Send the same again: the same receipt, replayed.", pay(coffee, "coffee-order-1")
    )
    yield Try(
        "The same key for another amount is refused: 422.", pay("order=coffee&cents=999", "coffee-order-1")
    )
    yield Try("Without a key, every request is a new payment. Send it twice.", pay(coffee, None))
    yield Try("What was really taken: one coffee with a key, and each one without.", f"curl {api}/ledger")
    yield Try(
        f"A payment takes {CAKE:g} seconds, and the customer asks again after one: 409.",
        f"{pay(cake, 'cake-order-7', flags='-s')} &\nsleep 1; {pay(cake, 'cake-order-7')}",
    )
    yield Try(
        "Kill the server in the middle of a payment. It is started again at once.",
        f"{pay(tea, 'tea-order-12', flags='-s')} &\nsleep 1; kill -9 $(cat {pid_file})",
    )
    yield Try(
        f"Send it again: 409 in-flight for {LEASE:g} seconds, then 409 outcome-unknown.",
        pay(tea, "tea-order-12"),
    )
    yield Try("What waits for an operator, and all about one of them.", f"{tool} ls \\\n     {operate}")
    yield Try("", f"{tool} show tea-order-12 \\\n     {operate}")
    yield Try(
        "There is no tea in the ledger, so let it go: the next retry pays.",
        f"{tool} release tea-order-12 \\\n     --reason 'not in the ledger' --yes \\\n     {operate}",
    )
    yield Try("The customer tries once more, and this time has tea.", pay(tea, "tea-order-12"))


def serve_until_stopped() -> int:
    console = make_console()
    try:
        with (
            TemporaryDirectory(prefix="retrysafe-demo-") as folder,
            Server(Path(folder), lease=LEASE) as server,
        ):
            _note_pid(server)
            _explain(console, server)
            while True:
                stop_if_asked()
                if server.ended(within=PAUSE):
                    server.restart()
                    _note_pid(server)
                    console.print(f"  The server was killed, and started again as process {server.pid}.")
    except ServerFailed as failure:
        console.print(Text(f"  {failure}", "bold red"))
        return 1


def _note_pid(server: Server) -> None:
    (server.folder / "server.pid").write_text(f"{server.pid}\n")


def _explain(console: Console, server: Server) -> None:
    console.print(
        f"\n  [bold]A small payments API[/] on http://127.0.0.1:{server.port}, until you press Ctrl-C."
    )
    console.print(f"  [dim]Its keys, ledger and log are in {server.folder}[/]\n")
    console.print("  Paste these into another terminal, one after the other.")
    number = 0
    for why, command in tries(server):
        if why:
            number += 1
            console.print(Text(f"\n  {number:2} {why}", "bold"))
        # Not wrapped, so that it stays what it is when it is pasted.
        console.print(Text("     " + command.replace("\n", "\n     "), "cyan"), soft_wrap=True)
    console.print()
