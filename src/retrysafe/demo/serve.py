"""`retrysafe demo --serve`: the payments API alone, with commands to paste, until Ctrl-C.

It restarts the server on the same port when it is killed, which one of the commands does.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from retrysafe.demo.report import command_line, make_console, print_error
from retrysafe.demo.server import STORE, Server, ServerFailed, new_shop
from retrysafe.demo.signals import POLL_INTERVAL, raise_if_stopped
from retrysafe.errors import StoreError

CAKE_SECONDS, TEA_SECONDS = 5.0, 6.0
"""How long paying for them takes: enough to send another request, or to kill the server."""

LEASE = 10.0
"""Seconds: long enough to see the 409 of a payment that may still run, short enough to wait for its end."""


class Step(NamedTuple):
    """A command to paste, and what it shows."""

    title: str
    command: str


def steps(server: Server) -> Iterator[Step]:
    api = f"http://127.0.0.1:{server.port}"

    def pay(form: str, key: str | None, *, flags: str = "-i") -> str:
        key_header = f"-H 'Idempotency-Key: {key}' " if key else ""
        return f"curl {flags} {api}/payments -H 'X-Customer: ada' \\\n     {key_header}-d '{form}'"

    coffee, cake, tea = (
        "order=coffee&cents=320",
        f"order=cake&cents=2850&seconds={CAKE_SECONDS:g}",
        f"order=tea&cents=290&seconds={TEA_SECONDS:g}",
    )
    pid_file = shlex.quote(str(server.folder / "server.pid"))
    # The address of a store that was given may contain a password: the commands read it from the environment.
    own = server.shop is None
    store = f"--store {shlex.quote(server.store)}" if own else f"--scope shop={server.shop}"
    retrysafe = command_line(elsewhere=True)

    yield Step("Pay for a coffee.", pay(coffee, "coffee-order-1"))
    yield Step(
        "The response was lost? Send the same again: the same receipt, replayed.",
        pay(coffee, "coffee-order-1"),
    )
    yield Step(
        "The same key for another amount is refused: 422.", pay("order=coffee&cents=999", "coffee-order-1")
    )
    yield Step("Without a key, every request is a new payment. Send it twice.", pay(coffee, None))
    yield Step("What was really taken: one coffee with a key, and each one without.", f"curl {api}/ledger")
    yield Step(
        f"A payment takes {CAKE_SECONDS:g} seconds, and the customer retries after one: 409.",
        f"{pay(cake, 'cake-order-7', flags='-s')} &\nsleep 1; {pay(cake, 'cake-order-7')}",
    )
    yield Step(
        "Kill the server in the middle of a payment. It is restarted at once.",
        f"{pay(tea, 'tea-order-12', flags='-s')} &\nsleep 1; kill -9 $(cat {pid_file})",
    )
    yield Step(
        f"Send it again: 409 in-flight for {LEASE:g} seconds, then 409 outcome-unknown.",
        pay(tea, "tea-order-12"),
    )
    yield Step("What waits for an operator, and all about one of them.", f"{retrysafe} ls \\\n     {store}")
    yield Step("", f"{retrysafe} show tea-order-12 \\\n     {store}")
    yield Step(
        "There is no tea in the ledger, so release the key: the next retry pays.",
        f"{retrysafe} release tea-order-12 \\\n     --reason 'not in the ledger' --yes \\\n     {store}",
    )
    yield Step("The customer retries once more, and this time has tea.", pay(tea, "tea-order-12"))


def serve_until_stopped(store: str | None = None) -> int:
    console = make_console()
    try:
        shop = None if store is None else new_shop(store)
        with (
            TemporaryDirectory(prefix="retrysafe-demo-") as folder,
            Server(Path(folder), lease=LEASE, store=store, shop=shop) as server,
        ):
            _write_pid(server)
            _print_steps(console, server)
            while True:
                raise_if_stopped()
                if server.ended(within=POLL_INTERVAL):
                    server.restart()
                    _write_pid(server)
                    console.print(f"  The server was killed, and restarted as process {server.pid}.")
    except (ServerFailed, StoreError) as error:
        print_error(console, str(error))
        return 1


def _write_pid(server: Server) -> None:
    (server.folder / "server.pid").write_text(f"{server.pid}\n")


def _print_steps(console: Console, server: Server) -> None:
    console.print(
        f"\n  [bold]A small payments API[/] on http://127.0.0.1:{server.port}, until you press Ctrl-C."
    )
    if server.shop is None:
        console.print(f"  [dim]Its keys, ledger and log are in {server.folder}[/]\n")
    else:
        console.print(f"  [dim]Its ledger and log are in {server.folder}[/]")
        console.print(
            f"  [dim]Its keys are in the store that was given, with the scope shop={server.shop},[/]"
        )
        console.print("  [dim]until they expire or are released.[/]\n")
    console.print("  Paste these into another terminal, one after the other.")
    if server.shop is not None:
        console.print(f"  There, set {STORE} to the address of the store.")
    number = 0
    for title, command in steps(server):
        if title:
            number += 1
            console.print(Text(f"\n  {number:2} {title}", "bold"))
        # Not wrapped, so that it can be pasted.
        console.print(Text("     " + command.replace("\n", "\n     "), "cyan"), soft_wrap=True)
    console.print()
