"""Multipart: the boundary does not count, and everything else does."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from retrysafe._core.fingerprint.multipart import MOST_PARTS, encode_parts, find_boundary, split


def pieces(body: bytes, boundary: bytes = b"b") -> list[bytes] | None:
    found = split(body, boundary)
    return None if found is None else [body[begin:end] for begin, end in found]


def assemble(boundary: bytes, parts: list[bytes], preamble: bytes = b"", epilogue: bytes = b"\r\n") -> bytes:
    """Preamble and epilogue as `split` gives them: with their line ends."""
    dashed = b"--" + boundary
    return (
        preamble + b"".join(dashed + b"\r\n" + part + b"\r\n" for part in parts) + dashed + b"--" + epilogue
    )


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        (b"multipart/form-data; boundary=abc", b"abc"),
        (b"multipart/form-data;boundary=abc", b"abc"),
        (b'multipart/form-data; BOUNDARY="a b:c"', b"a b:c"),
        (b"multipart/form-data ; charset=utf-8 ;; boundary=abc ; x=y ", b"abc"),
        (b"multipart/mixed; boundary=----=_Part_1_2.3", b"----=_Part_1_2.3"),
        (b'multipart/related; type="a\\"; boundary=no"; boundary=yes', b"yes"),
        (b"multipart/form-data; boundary=" + b"a" * 70, b"a" * 70),
        (b"multipart/form-data; boundary=" + b"a" * 71, None),
        (b"multipart/form-data", None),
        (b"multipart/form-data;", None),
        (b"multipart/form-data; boundary", None),
        (b"multipart/form-data; boundary=", None),
        (b'multipart/form-data; boundary=""', None),
        (b'multipart/form-data; boundary="abc', None),
        (b'multipart/form-data; boundary="abc "', None),
        (b'multipart/form-data; boundary="a\r\nb"', None),
        (b'multipart/form-data; boundary="a\\b"', None),
        (b"multipart/form-data; boundary=a\x00b", None),
        (b"multipart/form-data; boundary=a; boundary=a", None),
        (b"multipart/form-data; boundary=a; boundary=b", None),
        (b"multipart/form-data; boundary=a, text/plain", None),
        (b"multipart/form-data; boundary*=utf-8''a", None),
        (b"multipart/form-data; x=" + b'"' * 9999, None),
    ],
)
def test_find_boundary(content_type: bytes, boundary: bytes | None) -> None:
    """One legal boundary or none at all: two readers must not find two."""
    assert find_boundary(content_type) == boundary


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"--b--", [b"", b""]),
        (b"--b--\r\n", [b"", b"\r\n"]),
        (b"--b\r\nX: 1\r\n\r\nv\r\n--b--\r\n", [b"", b"X: 1\r\n\r\nv", b"\r\n"]),
        (b"--b\r\n\r\n--b--", [b"", b"", b""]),
        (b"\r\n--b\r\n\r\nv\r\n--b--", [b"\r\n", b"\r\nv", b""]),
        (b"hello\r\n--b\r\n\r\nv\r\n--b--\r\nbye", [b"hello\r\n", b"\r\nv", b"\r\nbye"]),
        (b"--b\r\n\r\na--b--b\r\n--b--", [b"", b"\r\na--b--b", b""]),
        (b"--b\r\n\r\na\n--b\r\n--b--", [b"", b"\r\na\n--b", b""]),
        (b"--b\r\n1\r\n--b\r\n2\r\n--b--\r\n--b\r\n3", [b"", b"1", b"2", b"\r\n--b\r\n3"]),
    ],
)
def test_split(body: bytes, expected: list[bytes]) -> None:
    """A delimiter counts at the beginning of a line only; what is around the parts is kept."""
    assert pieces(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--",
        b"--b",
        b"--b\r\n",
        b"--b\r\nX: 1\r\n\r\nno end\r\n",
        b"--b\r\nX: 1\r\n\r\nno end\r\n--b",
        b"--b\r\nX: 1\r\n\r\nno end\r\n--b-",
        b"--b\n\nbare line feeds\n--b--\n",
        b"--b \r\n\r\npadding\r\n--b--\r\n",
        b"--b\r\n\r\nlonger than the boundary\r\n--bb\r\n--b--\r\n",
        b"--b\r\n\r\nv\r\n--b--more",
        b"--b\r\n\r\nv\r\n--b--\n",
        b"--b\r\n--b\r\n\r\nno part between\r\n--b--",
        b"nothing",
        b"x--b\r\n\r\nnot at the beginning of a line\r\nx--b--",
    ],
)
def test_not_split(body: bytes) -> None:
    """Where parsers disagree we do not guess: the bytes are compared as they are."""
    assert pieces(body) is None


def test_the_number_of_parts_is_limited() -> None:
    """A body of tiny parts is cheap to send and must be cheap to look at."""
    assert split(assemble(b"b", [b""] * MOST_PARTS), b"b") is not None
    assert split(assemble(b"b", [b""] * (MOST_PARTS + 1)), b"b") is None


boundaries = (
    st.text("ab-'()+_,./:=? ", min_size=1, max_size=70).map(str.encode).filter(lambda b: b[-1:] != b" ")
)
contents = st.binary(max_size=40) | st.text("\r\n-ab", max_size=20).map(str.encode)


@given(st.lists(contents, max_size=4), boundaries, boundaries)
def test_a_fresh_boundary_changes_nothing(parts: list[bytes], one: bytes, other: bytes) -> None:
    """A retry by a client that draws its boundaries at random is the same request."""
    # A boundary that occurs in the content is one that no client would have drawn.
    assume(not any(b"\r\n--" + boundary in b"\r\n" + part for boundary in (one, other) for part in parts))
    for boundary in (one, other):
        assert pieces(assemble(boundary, parts), boundary) == [b"", *parts, b"\r\n"]


@given(st.text("\r\n-bc:", max_size=60).map(str.encode))
def test_nothing_is_left_out(body: bytes) -> None:
    """From the pieces and the boundary the body can be put together again, to the last byte."""
    found = pieces(body)
    if found is not None:
        preamble, *parts, epilogue = found
        assert assemble(b"b", parts, preamble, epilogue) == body


@given(st.binary(max_size=60), st.binary(max_size=30))
def test_hostile_bytes_never_raise(body: bytes, parameter: bytes) -> None:
    """Whatever the header and the body are: pieces, or none."""
    encoded = encode_parts(body, b"multipart/form-data; boundary=" + parameter)
    assert encoded is None or list(encoded)
