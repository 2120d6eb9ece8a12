"""Items of RFC 9651 whose value is a String, read as section 4.2 tells it, and slowly."""

import string

_LOWER = frozenset(string.ascii_lowercase)
_LETTERS = frozenset(string.ascii_letters)
_DIGITS = frozenset(string.digits)
_KEY_BEGINS = _LOWER | {"*"}
_KEY = _LOWER | _DIGITS | frozenset("_-.*")
_TOKEN_BEGINS = _LETTERS | {"*"}
_TOKEN = _LETTERS | _DIGITS | frozenset("!#$%&'*+-.^_`|~:/")
_BASE64 = _LETTERS | _DIGITS | frozenset("+/=")
_FIRST_SECOND, _LAST_SECOND = -62135596800, 253402300799
_HEXADECIMAL = _DIGITS | frozenset("abcdef")


class NotAString(Exception):
    """It is not an Item, or its value is not a String."""


def string_item(text: str) -> str:
    """Section 4.2.3, for text without surrounding spaces that opens with a quotation mark."""
    value, at = _string(text, 0)
    at = _parameters(text, at)
    if at != len(text):
        raise NotAString(f"something follows at {at}")
    return value


def _string(text: str, at: int) -> tuple[str, int]:
    """Section 4.2.5."""
    value: list[str] = []
    at += 1
    while at < len(text):
        character = text[at]
        at += 1
        if character == "\\":
            if at == len(text) or text[at] not in '"\\':
                raise NotAString("a bad escape")
            value.append(text[at])
            at += 1
        elif character == '"':
            return "".join(value), at
        else:
            value.append(character)
    raise NotAString("it is not closed")


def _parameters(text: str, at: int) -> int:
    """Section 4.2.3.2."""
    while at < len(text) and text[at] == ";":
        at += 1
        while at < len(text) and text[at] == " ":
            at += 1
        if at == len(text) or text[at] not in _KEY_BEGINS:
            raise NotAString("a parameter without a name")
        at = _run(text, at, _KEY)
        if at < len(text) and text[at] == "=":
            at = _bare(text, at + 1)
    return at


def _run(text: str, at: int, of: frozenset[str]) -> int:
    while at < len(text) and text[at] in of:
        at += 1
    return at


def _bare(text: str, at: int) -> int:
    """Section 4.2.3.1: where the bare item ends."""
    if at == len(text):
        raise NotAString("a parameter without a value")
    character = text[at]
    if character == "-" or character in _DIGITS:
        return _number(text, at)[0]
    if character == '"':
        return _string(text, at)[1]
    if character in _TOKEN_BEGINS:
        return _run(text, at, _TOKEN)
    if character == ":":
        return _bytes(text, at + 1)
    if character == "?":
        if text[at + 1 : at + 2] not in ("0", "1"):
            raise NotAString("neither true nor false")
        return at + 2
    if character == "@":
        end, is_decimal = _number(text, at + 1)
        # Section 3.3.7: parsers must support the years 1 to 9999, and need not support more.
        if is_decimal or not _FIRST_SECOND <= int(text[at + 1 : end]) <= _LAST_SECOND:
            raise NotAString("a date with a fraction, or beyond the calendar")
        return end
    if character == "%":
        return _display(text, at + 1)
    raise NotAString("nothing that an item begins with")


def _number(text: str, at: int) -> tuple[int, bool]:
    """Section 4.2.4: where it ends, and whether it is a Decimal."""
    if at < len(text) and text[at] == "-":
        at += 1
    end = _run(text, at, _DIGITS)
    if end == at:
        raise NotAString("a number without digits")
    if end == len(text) or text[end] != ".":
        if end - at > 15:
            raise NotAString("an integer that is too long")
        return end, False
    if end - at > 12:
        raise NotAString("a decimal that is too long")
    fraction = _run(text, end + 1, _DIGITS)
    if not 1 <= fraction - end - 1 <= 3:
        raise NotAString("a fraction of no length or too long")
    return fraction, True


def _bytes(text: str, at: int) -> int:
    """Section 4.2.7.  Padding may be left out; where there is any, it is at the end and not too long."""
    end = text.find(":", at)
    if end == -1 or not _BASE64.issuperset(text[at:end]):
        raise NotAString("not a sequence of bytes")
    content = text[at:end].rstrip("=")
    padding = end - at - len(content)
    # Four characters are three bytes, and one alone is none.
    if "=" in content or padding > 2 or (padding and not content) or len(content) % 4 == 1:
        raise NotAString("not base64")
    return end + 1


def _display(text: str, at: int) -> int:
    """Section 4.2.10."""
    if text[at : at + 1] != '"':
        raise NotAString("not a display string")
    at += 1
    decoded = bytearray()
    while at < len(text):
        character = text[at]
        at += 1
        if character == '"':
            try:
                decoded.decode("utf-8")
            except UnicodeDecodeError:
                raise NotAString("not UTF-8") from None
            return at
        if character == "%":
            digits = text[at : at + 2]
            if len(digits) < 2 or not _HEXADECIMAL.issuperset(digits):
                raise NotAString("not two digits")
            decoded.append(int(digits, 16))
            at += 2
        else:
            decoded.append(ord(character))
    raise NotAString("it is not closed")
