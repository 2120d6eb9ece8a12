"""Runs every tool that looks for broken promises at a chosen size, stores their reports, and makes a page.

    python -m tools.evidence                      # everything at standard size: an hour or two on two cores
    python -m tools.evidence crash-sqlite fuzz    # these parts
    python -m tools.evidence --size 0.01          # a trial of some minutes
    python -m tools.evidence --list               # what is done, and what is left

It can be stopped at any time and goes on where it was.  A report that was made from other code than is there
now does not count, and is made again.  Prose is in `page.md` and `found.toml`, numbers come from reports
alone.
"""
