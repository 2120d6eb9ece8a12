"""Canonical JSON: RFC 8785 wherever it loses nothing, and exact where it would."""

import json
import re
import struct
from decimal import Decimal
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retrysafe._core.fingerprint.canonical import DEEPEST, parse, write


def canonical(text: str) -> str:
    return write(parse(text.encode("utf-8", "surrogatepass")))


# RFC 8785, appendix B: the bits of a double, and how it is written.
APPENDIX_B = """
    0000000000000000  0
    8000000000000000  0
    0000000000000001  5e-324
    8000000000000001  -5e-324
    7fefffffffffffff  1.7976931348623157e+308
    ffefffffffffffff  -1.7976931348623157e+308
    4340000000000000  9007199254740992
    c340000000000000  -9007199254740992
    4430000000000000  295147905179352830000
    44b52d02c7e14af5  9.999999999999997e+22
    44b52d02c7e14af6  1e+23
    44b52d02c7e14af7  1.0000000000000001e+23
    444b1ae4d6e2ef4e  999999999999999700000
    444b1ae4d6e2ef4f  999999999999999900000
    444b1ae4d6e2ef50  1e+21
    3eb0c6f7a0b5ed8c  9.999999999999997e-7
    3eb0c6f7a0b5ed8d  0.000001
    41b3de4355555553  333333333.3333332
    41b3de4355555554  333333333.33333325
    41b3de4355555555  333333333.3333333
    41b3de4355555556  333333333.3333334
    41b3de4355555557  333333333.33333343
    becbf647612f3696  -0.0000033333333333333333
    43143ff3c1cb0959  1424953923781206.2
"""


@pytest.mark.parametrize(("bits", "text"), [line.split() for line in APPENDIX_B.split("\n") if line])
def test_the_numbers_of_the_rfc(bits: str, text: str) -> None:
    """Every finite double of the RFC's own table, in Python's spelling and in the RFC's."""
    double: float = struct.unpack(">d", bytes.fromhex(bits))[0]
    assert canonical(repr(double)) == text
    assert canonical(text) == text


def test_the_document_of_the_rfc() -> None:
    """The sample of section 3.2.2, but for the one number in it that the RFC rounds."""
    text = r"""{
        "numbers": [333333333.33333325, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"""
    assert canonical(text) == (
        '{"literals":[null,true,false],"numbers":[333333333.33333325,1e+30,4.5,0.002,1e-27],'
        r""""string":"€$\u000f\nA'B\"\\\\\"/"}"""
    )


def test_the_sorting_of_the_rfc() -> None:
    """Section 3.2.3: by UTF-16 code units, so an emoji comes before U+FB33."""
    names = ["€", "\r", "\ufb33", "1", "😀", "\u0080", "ö"]
    text = json.dumps(dict.fromkeys(names))
    assert list(json.loads(canonical(text))) == ["\r", "1", "\u0080", "ö", "€", "😀", "\ufb33"]


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("9007199254740993", "#9007199254740993e0"),
        ("-9007199254740993", "#-9007199254740993e0"),
        ("1152921504606846976", "#1152921504606846976e0"),
        ("333333333.33333329", "#33333333333333329e-8"),
        ("0.1000000000000000055511151231257827", "#1000000000000000055511151231257827e-34"),
        ("1e400", "#1e400"),
        ("-10e-401", "#-1e-400"),
        ("123456789012345678901234567890", "#12345678901234567890123456789e1"),
    ],
)
def test_what_a_double_would_round_is_written_in_full(text: str, exact: str) -> None:
    """Two amounts or ids that a handler can tell apart are never taken for one."""
    assert canonical(text) == exact


@pytest.mark.parametrize(
    "spellings",
    [
        ["0", "-0", "0.0", "-0.0", "0e5", "-0E-400", "0.000e999999"],
        ["1", "1.0", "1e0", "1E+0", "10e-1", "0.1e1", "1.000000000000000000000000"],
        ["100", "1e2", "1E2", "1e+2", "100.00", "1000e-1"],
        ["-0.5", "-5e-1", "-0.50"],
        ["1e21", "1000000000000000000000", "1.0e21"],
        ["9007199254740993", "9007199254740993.0", "9.007199254740993e15"],
    ],
)
def test_spellings_of_a_number(spellings: list[str]) -> None:
    """One number is one number, however it is spelled and on whichever path it is read."""
    assert len({canonical(text) for text in spellings}) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"{",
        b"[1,]",
        b"01",
        b"+1",
        b".5",
        b"1.",
        b"'a'",
        b"{a:1}",
        b'"\x01"',
        b"1 2",
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b'{"a":1,"a":1}',
        b'{"a":1,"\\u0061":2}',
        b'[{"x":{"a":1,"a":2}}]',
        b"\xef\xbb\xbf{}",
        '{"a":1}'.encode("utf-16"),
        '{"a":1}'.encode("utf-16-le"),
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b"1e" + b"9" * 5000,
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000,
        b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1),
    ],
)
def test_refused(data: bytes) -> None:
    """What is no JSON, or has no single meaning, is refused with the one exception that is promised."""
    with pytest.raises(ValueError, match=r"."):
        parse(data)


def test_nesting_up_to_the_limit() -> None:
    """The limit is on what was sent, not on who calls: see `DEEPEST`."""
    for text in ("[" * DEEPEST + "]" * DEEPEST, '{"a":' * (DEEPEST - 1) + "[1]" + "}" * (DEEPEST - 1)):
        assert canonical(text) == text


@pytest.mark.parametrize("text", ["9" * 100_000, "1" + "0" * 100_000, "0." + "0" * 100_000 + "1"])
def test_long_numbers(text: str) -> None:
    """Python refuses to convert so many digits to an `int`; nothing here converts them."""
    assert canonical(text).startswith("#")


Model = None | bool | str | Decimal | list["Model"] | dict[str, "Model"]
"""JSON as it is meant, independent of the code under test."""

texts = st.text(st.characters(), max_size=6)
"""Lone surrogates included: JSON can spell them."""


def joined(text: str) -> str:
    """As JSON reads it: two surrogates that make a pair are the character that they stand for."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


numbers = st.one_of(
    st.integers(-10, 10),
    st.integers(-(2**70), 2**70),
    st.sampled_from([2**53 - 1, 2**53, 2**53 + 1, 10**15, 10**16, 10**21, 10**22]),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.tuples(st.integers(-(10**18), 10**18), st.integers(-400, 400)).map(lambda n: f"{n[0]}e{n[1]}"),
).map(Decimal)
models: st.SearchStrategy[Model] = st.recursive(
    st.none() | st.booleans() | texts.map(joined) | numbers,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts.map(joined), inner, max_size=4),
    max_leaves=8,
)


def spell(value: Model, random: Random) -> str:
    """One of the many texts that mean this value."""
    space = random.choice(["", "", " ", "\n\t", "\r"])
    return space + spell_value(value, space, random) + space


def spell_value(value: Model, space: str, random: Random) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return "".join(spell_character(c, random) for c in value).join('""')
        case Decimal():
            return spell_number(value, random)
        case list():
            return f"[{space}{','.join(spell(item, random) for item in value)}]"
        case dict():
            members = list(value.items())
            random.shuffle(members)
            pairs = [f"{spell(name, random)}{space}:{spell(item, random)}" for name, item in members]
            return "{" + space + ",".join(pairs) + "}"


def spell_character(c: str, random: Random) -> str:
    if "\ud800" <= c <= "\udfff" or c < " " or c in '"\\' or random.random() < 0.3:
        units = c.encode("utf-16-be", "surrogatepass")
        escapes = [f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2)]
        return "".join(random.choice([e, f"\\u{e[2:].upper()}"]) for e in escapes)
    return c


def spell_number(value: Decimal, random: Random) -> str:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    zeros = random.randint(0, 3)
    figures = ("".join(map(str, digits)) + "0" * zeros).lstrip("0") or "0"
    shift = random.randint(0, 3)
    exponent += shift - zeros
    if shift:
        figures = figures.rjust(shift + 1, "0")
        figures = f"{figures[:-shift]}.{figures[-shift:]}"
    if exponent or random.random() < 0.3:
        figures += f"{random.choice('eE')}{exponent}"
    return "-" * sign + figures


def meaning(text: str) -> Model:
    """What a canonical text says.  That there is such a function is why no two values share a text."""
    plain = re.sub(r'("(?:[^"\\]|\\.)*")|#', lambda found: found[1] or "", text)
    value: Model = json.loads(plain, parse_float=Decimal, parse_int=Decimal)
    return value


@given(models, st.randoms(use_true_random=False))
@example([Decimal(2**53), Decimal(2**53 + 1)], Random(0))
@example({"#": "#1e5", '"': "\\"}, Random(0))
@example({"😀": None, "\ufb33": None, "\ud800": None, "a": None}, Random(0))
def test_equal_values_have_one_text_and_the_text_has_one_value(value: Model, random: Random) -> None:
    """Order, white space, escapes and spelling of numbers do not matter; everything else does."""
    text = canonical(spell(value, random))
    assert text == canonical(spell(value, random))
    assert meaning(text) == value
    assert not set("\n\r\t") & set(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_are_never_written_in_full(double: float) -> None:
    """Where RFC 8785 loses nothing we agree with it: the text reads back as the same double."""
    text = canonical(repr(double))
    assert "#" not in text
    assert float(text) == double


@given(st.binary(max_size=100) | st.text('[]{}",:\\u0d8e-+.1 tfn\ufeff', max_size=30).map(str.encode))
def test_hostile_bytes_are_a_value_or_a_value_error(data: bytes) -> None:
    """Nothing else is ever raised, and whatever is read can be written."""
    try:
        value = parse(data)
    except ValueError:
        return
    write(value)
