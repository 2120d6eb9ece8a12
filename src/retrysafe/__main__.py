"""`python -m retrysafe`: the command line, for when the script is not on the path."""

from retrysafe.cli import main

main()
