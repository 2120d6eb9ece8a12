"""Data made fit to be looked at: whatever a client sent, it cannot steer the terminal."""

from collections.abc import Mapping

_ESCAPES: Mapping[str, str] = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def clean(text: str) -> str:
    """The text in one line, with everything escaped that is no plain character.

    Control characters could move the cursor, retitle the window or answer prompts; marks that turn the
    direction of writing could make a path look like another; lone surrogates cannot be printed at all.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def clean_lines(text: str) -> list[str]:
    """The same for text that has lines of its own."""
    lines = text.replace("\r\n", "\n").expandtabs(4).split("\n")
    return [clean(line) for line in lines]


def _escape(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def plural(number: int, noun: str, plural: str = "") -> str:
    """`1 record`, `1,200 records`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def sized(size: int) -> str:
    """Bytes as people say them; powers of 1024, as every limit here is one."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:,.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:,.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")
