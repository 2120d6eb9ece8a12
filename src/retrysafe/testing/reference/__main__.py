"""`python -m retrysafe.testing.reference asgi --store URL --port N`"""

import argparse
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path

from retrysafe import Guard, stores
from retrysafe.errors import ConfigurationError
from retrysafe.policy import Options
from retrysafe.testing.reference import asgi
from retrysafe.testing.reference.layers import App
from retrysafe.testing.reference.principals import anybody
from retrysafe.testing.reference.serve import serve
from retrysafe.testing.reference.service import Service

FRAMEWORKS: dict[str, Callable[[Service, Guard], App]] = {"asgi": asgi.build}

# As long as the library's own default: most supervisors send SIGKILL after 30 s.
GRACE = 30.0


def parser() -> argparse.ArgumentParser:
    """What is not given is not passed on: the library's own default holds."""
    found = argparse.ArgumentParser(
        prog="python -m retrysafe.testing.reference",
        description="The reference application: everything that breaks an idempotency layer.",
    )
    found.add_argument("framework", choices=sorted(FRAMEWORKS))
    found.add_argument("--store", required=True, metavar="URL", help="such as sqlite:///keys.db")
    found.add_argument("--port", required=True, type=int, help="0: any that is free")
    found.add_argument("--workers", default=1, type=_positive, help="processes sharing the store")
    # The library has an option of that name, which is another thing.
    found.add_argument("--effects", dest="file", type=Path, help="a line for every effect")
    found.add_argument("--grace", default=GRACE, type=float, metavar="S")
    policy = found.add_argument_group("policy", argument_default=argparse.SUPPRESS)
    for name in ("--lease", "--retention", "--wait-for"):
        policy.add_argument(name, type=float, metavar="S")
    policy.add_argument("--abandoned", choices=("hold", "retry"))
    policy.add_argument("--failed", choices=("replay", "retry", "conflict"))
    policy.add_argument("--in-flight", choices=("reject", "wait"))
    policy.add_argument("--fingerprint", choices=("raw", "json"))
    policy.add_argument("--required", action="store_true")
    for name in ("--max-response", "--max-request"):
        policy.add_argument(name, type=int, metavar="BYTES")
    return found


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def main() -> None:
    arguments = parser()
    given = arguments.parse_args()
    said = {name: value for name, value in vars(given).items() if name in Options.__annotations__}
    logging.basicConfig(format="%(process)d %(levelname)s %(name)s: %(message)s")
    logging.getLogger("retrysafe").setLevel(logging.INFO)
    try:
        guard = Guard(stores.open(given.store), scope=anybody, grace=given.grace, **said)
    except ConfigurationError as error:
        arguments.error(str(error))
    with tempfile.TemporaryDirectory(prefix="retrysafe-reference-") as scratch:
        service = Service(given.file or Path(scratch, "effects"))
        app = FRAMEWORKS[given.framework](service, guard)
        serve(app, guard, port=given.port, workers=given.workers, grace=given.grace)


if __name__ == "__main__":
    main()
