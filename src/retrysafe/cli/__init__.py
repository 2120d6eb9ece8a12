"""The command line: what an operator uses to look at records and to settle them.

Importing it loads neither typer nor rich, which only `retrysafe[cli]` installs.  `main` is what the script
`retrysafe` and `python -m retrysafe` run.
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
