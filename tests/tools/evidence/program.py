"""`make evidence`, with parts of our own: python -m tests.tools.evidence.program FOLDER ARGUMENTS…"""

import sys
from collections.abc import Sequence
from pathlib import Path

from tools.evidence.__main__ import main
from tools.evidence.environment import Sources
from tools.evidence.jobs import Job, Part

PARTS = {
    "quick": ("passes", "passes", "passes"),
    "wrong": ("passes", "violates"),
    "broken": ("raises", "lies", "misused", "scribbles", "passes"),
    "slow": ("lingers",),
    "stubborn": ("stays",),
}


def parts(folder: Path) -> Sequence[Part]:
    def part(name: str) -> Part:
        def plan(size: float) -> list[Job]:
            return [
                Job(
                    f"{name}-{turn}",
                    ("tests.tools.evidence.fake", str(folder), f"{name}-{turn}", behaviour),
                    size,
                    Sources((f"code/{name}.py",)),
                )
                for turn, behaviour in enumerate(PARTS[name], 1)
            ]

        return Part(name, plan)

    return [part(name) for name in PARTS]


def write_code(folder: Path) -> None:
    """A file for each part: what its reports are about."""
    (folder / "code").mkdir()
    for name in PARTS:
        (folder / "code" / f"{name}.py").write_text("1")


def run(folder: Path, arguments: Sequence[str]) -> int:
    return main(
        arguments, parts=parts(folder), build=folder / "build", standard=folder / "page.md", root=folder
    )


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2:]))
