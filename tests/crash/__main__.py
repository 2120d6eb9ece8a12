"""The command line: see the package."""

import argparse
import sys
import tempfile
from pathlib import Path

from retrysafe.testing.postgres import PostgresServer
from tests.crash.campaign import Plan, as_text, run, shortfalls
from tests.crash.orders import Way

WAYS: dict[str, tuple[Way, ...]] = {
    "sqlite": ("sqlite3", "sqlalchemy"),
    "postgresql": ("psycopg", "psycopg async", "sqlalchemy", "sqlalchemy async"),
}


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.crash", description=__doc__)
    parser.add_argument("--store", choices=WAYS, required=True)
    parser.add_argument("--way", help="how handlers reach the database; by default all ways in turn")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--freezes", type=int, default=0)
    parser.add_argument("--cuts", type=int, default=0)
    parser.add_argument("--lease", type=float, default=0.5)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--customers", type=int, default=12)
    parser.add_argument("--pace", type=float, default=0.15)
    said = parser.parse_args()
    if not (said.kills or said.freezes or said.cuts):
        parser.error("say how many --kills, --freezes or --cuts")
    ways: list[Way] = [way for way in WAYS[said.store] if said.way in (None, way)]
    if not ways:
        parser.error(f"--way is {said.way!r}: with this store, one of {WAYS[said.store]}")
    failed = False
    with tempfile.TemporaryDirectory(prefix="retrysafe-crash-") as name:
        for way in ways:
            folder = Path(name) / way
            folder.mkdir()
            failed |= _run(said, way, len(ways), folder)
    return int(failed)


def _run(said: argparse.Namespace, way: Way, share: int, folder: Path) -> bool:
    def plan(url: str) -> Plan:
        kills, freezes, cuts = (-(-count // share) for count in (said.kills, said.freezes, said.cuts))
        return Plan(url, way, kills, freezes, cuts, said.lease, said.workers, said.customers, said.pace)

    def tell(line: str) -> None:
        sys.stderr.write(line + "\n")

    if said.store == "sqlite":
        report = run(plan(f"sqlite:///{folder / 'shop.db'}"), folder, tell)
    else:
        with PostgresServer() as server:
            report = run(plan(server.new_database()), folder, tell)
    strokes = sum(report.done.values())
    wrongs = shortfalls(report, successes=strokes // 2)
    sys.stdout.write(as_text(report) + "\n" + "".join(f"  WRONG {wrong}\n" for wrong in wrongs))
    return bool(wrongs)


if __name__ == "__main__":
    sys.exit(main())
