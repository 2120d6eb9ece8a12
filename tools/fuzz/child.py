"""One target under one engine, in a process of its own: libFuzzer ends the process when it is done.

Not to be called by hand: `python -m tools.fuzz TARGET` starts it, and reads what it leaves.
"""

import argparse
import gc
import json
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tools.fuzz.targets import Check

INSTRUMENTED = ["retrysafe", "http_sf"]
"""Whose branches and comparisons guide the fuzzer: the product, and what reads hostile bytes for it."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz.child")
    parser.add_argument("target")
    parser.add_argument("--engine", choices=("atheris", "random"), required=True)
    parser.add_argument("--executions", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--into", type=Path, required=True)
    given = parser.parse_args()
    engine = _atheris if given.engine == "atheris" else _random
    engine(given.target, given.executions, given.seed, given.into, planted=given.planted)


def _atheris(target: str, executions: int, seed: int, into: Path, *, planted: bool) -> None:
    atheris: Any = import_module("atheris")  # by its name: the development environment does not have it
    # Before anything of the product is imported.
    with atheris.instrument_imports(include=INSTRUMENTED):
        check, seeds, longest = _prepared(target, planted=planted)
    corpus = into / "corpus"
    corpus.mkdir()
    for number, data in enumerate(seeds):
        (corpus / f"{number:03}").write_bytes(data)
    options = [
        f"-runs={executions}",
        f"-seed={seed % 2**32 or 1}",  # zero would mean a random one
        f"-max_len={longest}",
        "-len_control=0",  # inputs are short anyway
        "-timeout=20",
        "-print_final_stats=1",
        "-reload=0",  # no other process adds to this corpus
        f"-artifact_prefix={into}/",
    ]
    # What there is now stays; and errors, which are most of what is made, are gone without being looked for.
    gc.freeze()
    gc.set_threshold(100_000)
    atheris.Setup([sys.argv[0], *options, str(corpus)], check)
    atheris.Fuzz()


def _random(target: str, executions: int, seed: int, into: Path, *, planted: bool) -> None:
    from tools.fuzz.mutator import Crash, fuzz

    check, seeds, longest = _prepared(target, planted=planted)
    done = executions
    try:
        fuzz(check, seeds, executions=executions, seed=seed, longest=longest)
    except Crash as crash:
        done = crash.executions + 1
        (into / "crash-found").write_bytes(crash.data)
        traceback.print_exception(crash.__cause__)
    (into / "random.json").write_text(json.dumps({"executions": done, "inputs": len(seeds)}))


def _prepared(target: str, *, planted: bool) -> "tuple[Check, list[bytes], int]":
    # Here, since a product that is imported before it is instrumented stays uninstrumented.
    from tools.fuzz import corpus
    from tools.fuzz.targets import LONGEST, load

    import_module("http_sf")  # the product does so at its first unusual key, which would be too late
    if not planted:
        return load(target), corpus.seeds(target), LONGEST[target]
    from tools.fuzz import planted as bugs

    check = bugs.planted(target)
    return check, bugs.harmless(check, corpus.seeds(target)), LONGEST[target]


if __name__ == "__main__":
    main()
