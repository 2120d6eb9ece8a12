"""Runs every tool of proof at a chosen size, keeps what each of them reported, and makes a page of it.

    python -m evidence                      # everything, at its standard size: about an hour on two cores
    python -m evidence crash-sqlite fuzz    # these parts
    python -m evidence --size 0.01          # a try of some minutes
    python -m evidence --list               # what is done, and what is left

It can be stopped at any time and goes on where it was.  Prose is in `page.md` and `found.toml`, numbers come
from reports alone.
"""
