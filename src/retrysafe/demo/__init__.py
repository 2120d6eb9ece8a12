"""`retrysafe demo`: a shop, a bad network and a killed server, once without keys and twice with them.

Everything is real: a payments API in a process of its own, sockets, SQLite on a disk or any other store,
SIGKILL.  The files, in the order in which to read them:

    api.py       a payments API and its guard
    server.py    runs the API as a process that can be killed
    client.py    the customers, and a client that retries as a good client does
    network.py   a proxy that loses requests and responses
    ledger.py    the card network's own records, and what should be in them
    crash.py     kills the server, and settles the payments whose outcome is unknown
    scenario.py  the three runs
    report.py    what is printed about them
    serve.py     `--serve`: the API alone, with `curl` commands to try
    signals.py   Ctrl-C, SIGTERM and a closed terminal
"""

import sys

from retrysafe.demo.signals import defer_signals

__all__ = ["run"]

INTERRUPTED = 130
"""The exit code that shells use for a program that was ended by Ctrl-C."""


def run(*, serve: bool = False, seed: int | None = None, store: str | None = None) -> int:
    """The exit code: 0 if with keys every payment was charged exactly once, else 1.

    Keys are in a temporary file, or in the `store` of this address, among other records.
    """
    # Imported here: the server's process and the command line's help need none of it.
    from retrysafe.demo.scenario import run_demo
    from retrysafe.demo.serve import serve_until_stopped

    with defer_signals():
        try:
            return serve_until_stopped(store) if serve else run_demo(seed, store=store)
        except KeyboardInterrupt:
            sys.stdout.write(
                "\n  Stopped. No process is left running, and the temporary files are removed.\n"
            )
            return 0 if serve else INTERRUPTED
