"""What can go wrong here."""


class EvidenceError(Exception):
    """Something that whoever started it has to mend.  Its text is all that is shown."""
