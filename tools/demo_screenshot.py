"""Runs the demo, and saves what it printed as a picture.

python -m tools.demo_screenshot docs/demo.svg [SEED]
"""

import os
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from retrysafe.demo.report import WIDTH
from retrysafe.demo.scenario import run_demo

# A picture in a README must not fetch fonts from another server: any monospaced font will do.
_FONTS = re.compile(r"@font-face *\{.*?\}\s*", re.DOTALL)


def main(path: Path, seed: int) -> int:
    # As it looks in an active environment: the picture says `retrysafe`, and not where that is installed.
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    console = Console(
        record=True, width=WIDTH, force_terminal=True, color_system="truecolor", highlight=False
    )
    # Without the progress bar: in a picture it would stand in each of its positions.
    code = run_demo(seed, console=console, live=False)
    drawing = console.export_svg(title="retrysafe demo", theme=MONOKAI, unique_id="demo")
    path.write_text(_FONTS.sub("", drawing), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 7))
