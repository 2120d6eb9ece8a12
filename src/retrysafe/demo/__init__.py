"""`retrysafe demo`: a shop, a bad network and a killed server, once without keys and twice with them.

Everything is real: a payments API in a process of its own, sockets, SQLite on a disk, SIGKILL.  The files, in
the order in which to read them:

    api.py       a payments API and its guard; server.py runs it as a process
    client.py    the customers, and a client that retries as a good client does
    ledger.py    the card network's own records, against what should have been taken
    network.py   a bad network
    crash.py     killing the server, and settling what is in doubt
    scenario.py  the three runs; report.py shows them
    serve.py     `--serve`: the API alone, with `curl` lines to try
    signals.py   Ctrl-C, and the other ways to be told to end
"""

import sys

from retrysafe.demo.signals import noting_signals

__all__ = ["run"]

STOPPED = 130
"""What shells report for a program that was ended by Ctrl-C."""


def run(*, serve: bool = False, seed: int | None = None) -> int:
    """The exit code: 0 if nothing was doubled or lost with keys and the books agree to the cent, else 1."""
    # Loaded by whoever wants to see it: the server's process and the command line need no table.
    from retrysafe.demo.scenario import perform
    from retrysafe.demo.serve import serve_until_stopped

    with noting_signals():
        try:
            return serve_until_stopped() if serve else perform(seed)
        except KeyboardInterrupt:
            sys.stdout.write("\n  Stopped. Nothing was left running, and the temporary files are gone.\n")
            return 0 if serve else STOPPED
