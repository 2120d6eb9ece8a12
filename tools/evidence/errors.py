"""The error of this package."""


class EvidenceError(Exception):
    """Something that the maintainer has to fix.  Its text is all that is shown."""
