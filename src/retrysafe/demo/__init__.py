"""`retrysafe demo`: a shop, a bad network and a killed server, once without keys and twice with them.

Everything is real: a payments API in a process of its own, sockets, SQLite on a disk, SIGKILL.  The files, in
the order in which to read them:

    api.py       a payments API and its guard; server.py and process.py run it
    client.py    a client that retries as a good client does
    ledger.py    the card network's own records: the truth
    mishaps.py   the bad network, and crowd.py: the customers
    accident.py  killing the server, and settling what is in doubt
    books.py     what was taken, against what should have been
    story.py     the three acts; display.py and report.py show them
    serving.py   `--serve`: the API alone, with `curl` lines to try
    stopping.py  Ctrl-C, and the other ways to be told to end
"""

import sys

from retrysafe.demo.stopping import noting_signals

__all__ = ["run"]

STOPPED = 130
"""What shells report for a program that was ended by Ctrl-C."""


def run(*, serve: bool = False, seed: int | None = None) -> int:
    """The exit code: 0 if nothing was doubled or lost with keys and the books agree to the cent, else 1."""
    # Loaded by whoever wants to see it: the server's process and the command line need no table.
    from retrysafe.demo.serving import serve_until_stopped
    from retrysafe.demo.stage import perform

    with noting_signals():
        try:
            return serve_until_stopped() if serve else perform(seed)
        except KeyboardInterrupt:
            sys.stdout.write("\n  Stopped. Nothing was left running, and the temporary files are gone.\n")
            return 0 if serve else STOPPED
