"""`python -m retrysafe.callbacks.jobs FOLDER`: deliver what jobs have left in a folder.

Exits with 0 if nothing is left that another run, or a person, has to look at, and with 1 otherwise.
Credentials come from the environment, where they are not in the list of processes:
`RETRYSAFE_CALLBACK_SECRET` signs, `RETRYSAFE_CALLBACK_AUTHORIZATION` is sent as `Authorization`.
"""

import argparse
import os
import sys
from pathlib import Path

from retrysafe.callbacks.jobs.delivery import AttemptOptions, deliver_pending
from retrysafe.callbacks.jobs.errors import DeliveryError
from retrysafe.callbacks.jobs.request import is_sendable
from retrysafe.errors import ConfigurationError


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m retrysafe.callbacks.jobs",
        description="Deliver the callbacks that jobs have left in a folder.",
        epilog="From the environment: RETRYSAFE_CALLBACK_SECRET signs them, and "
        "RETRYSAFE_CALLBACK_AUTHORIZATION is sent as Authorization.",
    )
    made.add_argument("folder", type=Path, metavar="FOLDER")
    made.add_argument(
        "--patience",
        metavar="DURATION",
        help="such as 10m: plan no attempt for later, and leave the rest; without it, each callback is tried "
        "until its own horizon ends",
    )
    made.add_argument(
        "--again", action="store_true", help="begin anew with those that were refused or have expired"
    )
    return made


def main(arguments: list[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    if not given.folder.is_dir():
        sys.stderr.write(f"{given.folder} is not a folder\n")
        return 1
    options: AttemptOptions = {"secret": os.environ.get("RETRYSAFE_CALLBACK_SECRET") or None}
    if authorization := os.environ.get("RETRYSAFE_CALLBACK_AUTHORIZATION"):
        options["headers"] = {"Authorization": authorization}
    try:
        found = deliver_pending(given.folder, patience=given.patience, again=given.again, **options)
    except (ConfigurationError, DeliveryError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for one in found:
        said = f": {one.detail}" if one.detail else ""
        sys.stdout.write(f"{one.outcome:<10} {_shown(one.callback_id)} {one.file}{said}\n")
    return 0 if all(one.outcome in ("delivered", "busy") for one in found) else 1


def _shown(callback_id: str | None) -> str:
    """One word on one line, whatever is in an id."""
    if callback_id is None:
        return "-"
    return callback_id if is_sendable(callback_id) and " " not in callback_id else ascii(callback_id)


if __name__ == "__main__":
    sys.exit(main())
