"""The command line: what an operator has at two in the morning.

Loads nothing by itself, because it comes with the package and its two libraries do not: `retrysafe[cli]` has
them.  `main` is what the script `retrysafe` and `python -m retrysafe` run.
"""

import sys


def main() -> None:
    """Run the command line and end the process."""
    try:
        import rich as _rich
        import typer as _typer
    except ModuleNotFoundError as missing:
        sys.stderr.write(
            f"retrysafe: the command line needs {missing.name}, which is not installed: "
            "pip install 'retrysafe[cli]'\n"
        )
        sys.exit(1)
    del _rich, _typer
    from retrysafe.cli.app import run

    sys.exit(run())
