"""Address labels: a file per order, which may be written again at any time."""

import os
from pathlib import Path

FOLDER = Path(os.environ.get("SHOP_LABELS", "labels"))


def write(order: str, address: str) -> str:
    """Gives the name of the file."""
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / f"{order}.txt"
    file.write_text(f"{address}\n")
    return file.name
