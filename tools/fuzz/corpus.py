"""Where fuzzing begins: a few inputs for each target, one on each line, with bytes escaped as in Python."""

from pathlib import Path
from typing import Final

SEEDS: Final = Path(__file__).parent / "seeds"


def seeds(target: str) -> list[bytes]:
    """The inputs that are known to lead somewhere."""
    text = (SEEDS / f"{target}.txt").read_text(encoding="ascii")
    lines = [line for line in text.splitlines() if not line.startswith("# ")]
    return [line.encode().decode("unicode_escape").encode("latin-1") for line in lines]
