"""Runs every tool of proof at a chosen size, keeps what each of them reported, and makes a page of it.

    python -m tools.evidence                      # everything at standard size: an hour or more on two cores
    python -m tools.evidence crash-sqlite fuzz    # these parts
    python -m tools.evidence --size 0.01          # a try of some minutes
    python -m tools.evidence --list               # what is done, and what is left

It can be stopped at any time and goes on where it was.  A report that was made from other code than is there
now counts for nothing, and is made again.  Prose is in `page.md` and `found.toml`, numbers come from reports
alone.
"""
