"""Keys: what a header may hold, what identity it gets, and how much of it people see."""

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retrysafe._core.keys import BadKey, Secret, digest, parse_key

PRINTABLE = "".join(map(chr, range(0x20, 0x7F)))
BARE = "".join(sorted(set(PRINTABLE) - set(' ",')))


def quoted(key: str) -> bytes:
    """RFC 9651, section 4.1.6, written anew so that the test does not trust the parser's sibling."""
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'.encode("ascii")


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (b'"k1"', "k1"),
        (b"k2", "k2"),
        (b'"k2"', "k2"),
        (rb'"a\"b\\c"', 'a"b\\c'),
        (b'"k";a=1', "k"),
        (b'"k"; a; b="x;y"; c=:YQ==:;d=?1', "k"),
        (b'"a b, c"', "a b, c"),
        (b'" k "', " k "),
        (b" \t k\t ", "k"),
        (b' \t"k"\t ', "k"),
        (b'\t"k";a=1 ', "k"),
        (b"k;a=1", "k;a=1"),
        (b"a\\b", "a\\b"),
        (b":YWJj:", ":YWJj:"),
        (b"K", "K"),
        (b"8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324"),
        (b"k" * 255, "k" * 255),
        (b'"' + b"k" * 255 + b'"', "k" * 255),
        (b'"' + b'\\"' * 255 + b'"', '"' * 255),
    ],
)
def test_accepted(value: bytes, key: str) -> None:
    """Conformance 1, 3, 7, 12: quoted and bare spellings, escapes, parameters, up to 255 characters."""
    assert parse_key([value]) == key


@pytest.mark.parametrize(
    ("values", "hint"),
    [
        ([b'"a"', b'"b"'], "send it once"),
        ([b'"a"', b'"a"'], "send it once"),
        ([b"a", b"a", b"a"], "3 times"),
        ([], "send it once"),
        ([b'"a\\x"'], "escape"),
        ([b'"a'], "close"),
        ([b'"a\\'], "close"),
        ([b'"a\\"'], "close"),
        ([b'"'], "close"),
        ([b'"a"zzz'], "nothing but ;parameters"),
        ([b'"a" zzz'], "nothing but ;parameters"),
        ([b'"a", "b"'], "nothing but ;parameters"),
        ([b'"a";'], "parameters"),
        ([b'"a";B=1'], "parameters"),
        ([b'"a";d=@9999999999999'], "parameters"),
        ([b'"a";b=:*:'], "parameters"),
        ([b'"a";s=%"%ff"'], "parameters"),
        ([b"a,b"], "comma"),
        ([b"a, a"], "comma"),
        ([b"a b"], "quote such a key"),
        ([b'a"b'], "quote such a key"),
        ([b'a"'], "quote such a key"),
        ([b""], "empty"),
        ([b" \t "], "empty"),
        ([b'""'], "0 characters; send 1 to 255"),
        ([b'"";a=1'], "0 characters; send 1 to 255"),
        ([b"k" * 256], "256 characters; send 1 to 255"),
        ([b'"' + b"k" * 256 + b'"'], "256 characters"),
        (["ké".encode()], "printable ASCII"),
        (['"ké"'.encode()], "printable ASCII"),
        ([b"k\xff"], "printable ASCII"),
        ([b"a\x00b"], "printable ASCII"),
        ([b'"a\x00b"'], "printable ASCII"),
        ([b"a\x7fb"], "printable ASCII"),
        ([b'"a\tb"'], "printable ASCII"),
        ([b'"a";\tb'], "printable ASCII"),
        ([b"a\r\nX: b"], "printable ASCII"),
        ([b'"a"\n'], "printable ASCII"),
        ([b"a\n"], "printable ASCII"),
    ],
)
def test_refused(values: list[bytes], hint: str) -> None:
    """Conformance 5, 6, 8, 10, 11, 12: what is malformed is refused, with a hint and not ignored."""
    refusal = parse_key(values)
    assert isinstance(refusal, BadKey)
    assert hint in refusal.reason


@pytest.mark.parametrize("value", [b"k", b" k ", b"42", b"550e8400-e29b-41d4-a716-446655440000"])
def test_strict(value: bytes) -> None:
    """Where a wire takes RFC 9651 at its word, a bare key is refused, and its quoted form is the key."""
    refusal = parse_key([value], strict=True)
    assert isinstance(refusal, BadKey)
    assert "not quoted" in refusal.reason
    assert parse_key([b'"' + value.strip() + b'"'], strict=True) == parse_key([value])
    assert parse_key([b'"a\\"b";v=1'], strict=True) == 'a"b'


def test_limits_are_the_callers() -> None:
    """A profile narrows the length, and public keys have a least one; escapes do not count."""
    assert parse_key([b"k" * 16], shortest=16) == "k" * 16
    assert parse_key([b"k" * 15], shortest=16) == BadKey("it has 15 characters; send 16 to 255")
    assert parse_key([b"k" * 201], longest=200) == BadKey("it has 201 characters; send 1 to 200")
    assert parse_key([b'"\\"\\""'], longest=2) == '""'


@given(st.one_of(st.binary(max_size=300), st.text('"\\;=,:?@%*a1 \t\0é').map(str.encode)))
@example(b'"' + b"\\" * 9999)
@example(b'"a"' + b";a" * 9999)
def test_hostile_bytes_are_a_key_or_a_refusal(value: bytes) -> None:
    """Nothing raises, and no key comes out that is empty, over-long or not printable (S10)."""
    key = parse_key([value])
    if isinstance(key, str):
        assert 1 <= len(key) <= 255
        assert set(key) <= set(PRINTABLE)


@given(st.text(string.ascii_lowercase, min_size=12), st.binary(min_size=1, max_size=4))
def test_a_refusal_never_repeats_the_key(key: str, spoiler: bytes) -> None:
    """Conformance 69: the reason goes to logs and problems, and holds nothing of what was sent."""
    refusal = parse_key([b'"' + key.encode() + spoiler])
    if isinstance(refusal, BadKey):
        assert key not in refusal.reason


@given(st.text(PRINTABLE, min_size=1, max_size=255))
def test_every_printable_string_can_be_sent_quoted(key: str) -> None:
    """What a conforming client serialises comes back as it was, with and without parameters."""
    assert parse_key([quoted(key)]) == key
    assert parse_key([quoted(key) + b"; a=1"]) == key


@given(st.text(BARE, min_size=1, max_size=255))
def test_bare_and_quoted_are_one_key(key: str) -> None:
    """Conformance 3: clients that quote and clients that do not share their keys."""
    assert parse_key([key.encode()]) == parse_key([quoted(key)]) == key


TEXT = st.text(st.characters(), max_size=8)
IDENTITY = st.tuples(TEXT, st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple), TEXT)


@given(IDENTITY, IDENTITY)
@example(("request", (("u", "k"),), "/a/b"), ("request", (("u", "k/a"),), "/b"))
@example(("d", (("a", "b"),), "k"), ("d", (), "1:a1:bk"))
@example(("d", (("1:a", ""),), "k"), ("d", (("", "1:a"),), "k"))
@example(("d", (), "é"), ("d", (), "e\u0301"))
@example(("d", (), "\ud83d\ude00"), ("d", (), "😀"))
@example(("d", (), "k"), ("d", (), "K"))
@example(("d", (), "k"), ("d", (), "k "))
def test_digests_differ_where_anything_differs(
    one: tuple[str, tuple[tuple[str, str], ...], str],
    other: tuple[str, tuple[tuple[str, str], ...], str],
) -> None:
    """S5, S6: no two doors, scopes and keys share an identity, however their fields are cut."""
    assert (digest(*one) == digest(*other)) == (one == other)
    assert len(digest(*one)) == 32


def test_a_digest_is_for_ever() -> None:
    """Records outlive releases: this value may change only together with the scheme's version."""
    identity = digest("request", (("tenant", "7"), ("user", "42")), "k1")
    assert identity.hex() == "3c6542196ef2db878b96272232889a89424a5da0d4452f8553202b33f192e5a7"


def test_an_identity_with_a_secret() -> None:
    """An HMAC: without the secret, a stored digest cannot be compared with a guess."""
    owner = (("tenant", "7"),)
    keyed = digest("request", owner, "k1", b"a secret of sixteen")
    assert len(keyed) == 32
    assert keyed == digest("request", owner, "k1", b"a secret of sixteen")
    others = [
        digest("request", owner, "k1"),
        digest("request", owner, "k1", b"another of sixteen"),
        digest("request", owner, "k2", b"a secret of sixteen"),
        digest("callback", owner, "k1", b"a secret of sixteen"),
    ]
    assert keyed not in others


def test_a_secret_is_not_shown() -> None:
    """Not by a traceback with its variables; but it is the bytes that it is."""
    secret = Secret(b"a secret of sixteen")
    assert repr(secret) == f"{secret!r}" == "<secret>"
    assert secret == b"a secret of sixteen"
