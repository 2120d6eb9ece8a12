"""Fingerprints: which requests are the same request."""

import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import combinations
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retrysafe._core.fingerprint import (
    LARGEST_JSON,
    BodyView,
    Fingerprint,
    InMemory,
    check,
    fingerprint,
    same,
)
from retrysafe._core.model import Request
from retrysafe.errors import ConfigurationError


def ask(
    body: bytes = b"",
    kind: Fingerprint = "raw",
    *,
    method: str = "POST",
    path: str = "/orders",
    query: bytes = b"",
    media: bytes = b"application/json",
) -> bytes:
    request = Request(method, path, query, [(b"content-type", media)])
    return fingerprint(kind, request, InMemory(body))


def form(boundary: bytes, file: bytes = b"\x00\xff\r\n") -> bytes:
    part = b'Content-Disposition: form-data; name="f"; filename="x"\r\n\r\n' + file
    return b"--%b\r\n%b\r\n--%b--\r\n" % (boundary, part, boundary)


def upload(boundary: bytes, body: bytes, kind: Fingerprint = "raw") -> bytes:
    return ask(body, kind, media=b"multipart/form-data; boundary=" + boundary)


def length(request: Request, body: bytes) -> str:
    return str(len(body))


KINDS: list[Fingerprint] = ["raw", "json", ("a",), length]


@pytest.mark.parametrize("kind", KINDS)
def test_everything_but_the_body(kind: Fingerprint) -> None:
    """Conformance 36: another method, path, query or media type is another request, in every kind."""
    asked = [
        ask(b"{}", kind),
        ask(b"{}", kind, method="PUT"),
        ask(b"{}", kind, path="/orders/"),
        ask(b"{}", kind, path="/Orders"),
        ask(b"{}", kind, path="/orders\udc80"),
        ask(b"{}", kind, query=b"a=1"),
        ask(b"{}", kind, query=b"a=2"),
        ask(b"{}", kind, query=b"\xff"),
        ask(b"{}", kind, media=b"application/xml"),
        ask(b"{}", kind, media=b""),
    ]
    assert len(set(asked)) == len(asked)


def test_none_compares_method_and_path_only() -> None:
    """The option of those who never compared bodies: query, media type and body are left out."""
    assert ask(b"x", None) == ask(b"y", None, query=b"a=1", media=b"text/plain")
    assert ask(b"x", None) != ask(b"x", None, method="PUT")
    assert ask(b"x", None) != ask(b"x", None, path="/order")


@pytest.mark.parametrize(
    "media",
    [b"Application/JSON", b" application/json\t", b"application/json;charset=utf-8", b"application/json ;"],
)
def test_media_types_without_parameters(media: bytes) -> None:
    """Case, white space and parameters of a media type do not make another request."""
    assert ask(b"{}", media=media) == ask(b"{}")


def test_raw_and_json() -> None:
    """Conformance 40: order and white space make another request in raw mode, and none as JSON."""
    one, other = b'{"a":1,"b":2}', b'{ "b": 2, "a": 1.0 }'
    assert ask(one) != ask(other)
    assert ask(one, "json") == ask(other, "json")
    assert ask(one, "json") != ask(b'{"a":1,"b":3}', "json")


def test_fields() -> None:
    """The chosen fields of a body, and nothing else of it."""
    one, other = b'{"a":{"id":1},"at":"09:00"}', b'{"at":"09:05","a":{"id":1}}'
    assert ask(one, ("a.id",)) == ask(other, ("a.id",))
    assert ask(one, ("a.id", "at")) != ask(other, ("a.id", "at"))


@pytest.mark.parametrize("kind", ["json", ("a",)])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"a":1,"a":1}',
        b"\xef\xbb\xbf{}",
        b'"\xff"',
        b"NaN",
        b"[" * 200 + b"]" * 200,
        b"[" * 9999,
        b'"' + b"x" * LARGEST_JSON + b'"',
    ],
    ids=lambda body: repr(body[:12]),
)
def test_what_is_no_json_is_compared_as_it_was_sent(kind: Fingerprint, body: bytes) -> None:
    """Nothing is refused for its body here, and nothing is merged: it is as if the kind were raw."""
    assert ask(body, kind) == ask(body, "raw")


@pytest.mark.parametrize("kind", ["json", ("a",)])
def test_the_callers_stack_does_not_matter(kind: Fingerprint) -> None:
    """A retry that comes through more middleware is read in the same way."""
    body = b'{"a":' * 100 + b"1" + b"}" * 100

    def through(frames: int) -> bytes:
        return through(frames - 1) if frames else ask(body, kind)

    assert ask(body, kind) == through(sys.getrecursionlimit() // 2)
    assert ask(body, kind) != ask(body, "raw")


def test_multipart() -> None:
    """Conformance 39: a fresh boundary is the same request, one changed byte of a file another."""
    assert upload(b"x1", form(b"x1")) == upload(b"y-22", form(b"y-22"))
    assert upload(b"x1", form(b"x1")) == upload(b"y-22", form(b"y-22"), "json")
    assert upload(b"x1", form(b"x1")) != upload(b"x1", form(b"x1", b"\x00\xfe\r\n"))
    assert upload(b"x1", form(b"x1")) != upload(b"y-22", form(b"x1"))
    assert ask(form(b"x1"), media=b"text/plain; boundary=x1") != ask(
        form(b"y1"), media=b"text/plain; boundary=y1"
    )


@given(st.binary(min_size=1, max_size=30), st.data())
def test_one_byte_of_an_upload(file: bytes, data: st.DataObject) -> None:
    """S5: wherever the byte is, header, content or line end, another byte is another request."""
    body = form(b"b", file)
    at = data.draw(st.integers(0, len(body) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != body[at]))
    changed = body[:at] + bytes([byte]) + body[at + 1 :]
    assert upload(b"b", changed) != upload(b"b", body)


@given(st.tuples(*[st.binary(max_size=4)] * 3), st.tuples(*[st.binary(max_size=4)] * 3))
@example((b"a", b"b", b"c"), (b"ab", b"", b"c"))
@example((b"", b"1:a", b""), (b"1:a", b"", b""))
def test_fields_do_not_run_together(one: tuple[bytes, ...], other: tuple[bytes, ...]) -> None:
    """S5: query, media type and body are told apart wherever one ends and the next begins."""

    def asked(query: bytes, media: bytes, body: bytes) -> bytes:
        return ask(body, query=query, media=b"x/" + media.hex().encode())

    assert (asked(*one) == asked(*other)) == (one == other)


def test_kinds_do_not_meet() -> None:
    """The same bytes in another encoding are another fingerprint."""
    kinds: list[Fingerprint] = [*KINDS, None, lambda _, body: body]
    bodies = [ask(b'{"a":1}', kind) for kind in kinds]
    assert all(not same(one, other) for one, other in combinations(bodies, 2))
    assert all(same(one, one) for one in bodies)


def test_a_function() -> None:
    """It sees the request and the whole body; what it says is compared, and nothing else of the body."""
    seen: list[tuple[Request, bytes]] = []

    def first_word(request: Request, body: bytes) -> bytes:
        seen.append((request, body))
        return body.split()[0]

    assert ask(b"a b", first_word) == ask(b"a c", first_word) == ask(b"a", lambda _, body: body.decode())
    assert ask(b"a b", first_word) != ask(b"b b", first_word)
    request, body = seen[0]
    assert (request.method, request.path, request.header(b"content-type"), body) == (
        "POST",
        "/orders",
        b"application/json",
        b"a b",
    )


@pytest.mark.parametrize("answer", [None, 7, bytearray(b"x"), ["x"]])
def test_a_function_that_answers_something_else(answer: object) -> None:
    """A fault of the application is raised, not papered over with a guess."""
    with pytest.raises(TypeError, match="return bytes or str"):
        ask(b"", cast("Fingerprint", lambda _request, _body: answer))


def test_a_function_that_fails() -> None:
    """Its own error reaches whoever has to fix it, even one that a parser could have raised."""
    with pytest.raises(ValueError, match="mine"):
        ask(b"", lambda _, body: str(int("mine")))


class OnDisk:
    """A body as a spool keeps it: mapped, and read in pieces."""

    def __init__(self, file: Path, data: bytes, piece: int) -> None:
        file.write_bytes(data)
        self.size, self.piece = len(data), piece
        with file.open("rb") as opened:
            self.map = mmap(opened.fileno(), 0, access=ACCESS_READ)

    def chunks(self) -> Iterator[bytes]:
        for begin in range(0, self.size, self.piece):
            yield self.map[begin : begin + self.piece]

    def view(self) -> mmap:
        return self.map


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("media", [b"application/json", b"multipart/form-data; boundary=x1"])
@pytest.mark.parametrize("data", [b'{"a": 1}', form(b"x1"), form(b"other"), b"x" * 5000])
def test_where_a_body_is_kept_does_not_matter(
    kind: Fingerprint, media: bytes, data: bytes, tmp_path: Path
) -> None:
    """In memory, or on disk in pieces of any size; and a map can be closed afterwards."""
    request = Request("POST", "/", b"", [(b"content-type", media)])
    on_disk = [OnDisk(tmp_path / str(piece), data, piece) for piece in (1, 7, 9999)]
    bodies: list[BodyView] = [InMemory(data), *on_disk]
    assert len({fingerprint(kind, request, body) for body in bodies}) == 1
    for body in on_disk:
        body.map.close()


@given(st.binary(max_size=60), st.binary(max_size=60), st.binary(max_size=60))
def test_hostile_requests_have_a_fingerprint(query: bytes, media: bytes, body: bytes) -> None:
    """Nothing that a client sends raises, and a fingerprint is always a version and 32 bytes."""
    for kind in KINDS:
        for content_type in (media, b"multipart/" + media, b"multipart/x; boundary=" + media):
            made = ask(body, kind, query=query, media=content_type)
            assert len(made) == 33
            assert made[0] == 1


@pytest.mark.parametrize("kind", [*KINDS, None, ("a.b", "/c")])
def test_what_a_policy_may_say(kind: Fingerprint) -> None:
    """All kinds pass the check that a policy makes when it is built."""
    check(kind)


@pytest.mark.parametrize("kind", ["jcs", "customer.id", (), ("a", 1), ["a"], 7, b"raw", True])
def test_what_a_policy_may_not_say(kind: object) -> None:
    """A misspelt kind is noticed when the policy is built, with the list of what there is."""
    with pytest.raises(ConfigurationError, match='none of "raw", "json"'):
        check(kind)


def test_fingerprints_are_for_ever() -> None:
    """Records outlive releases: these may change only together with the version byte."""
    body = b'{"b":[1.0,9007199254740993],"a":"\\u20ac"}'
    made = {
        "raw": ask(body, query=b"q=1"),
        "json": ask(body, "json", query=b"q=1"),
        "fields": ask(body, ("a", "b.1", "c"), query=b"q=1"),
        "function": ask(body, length, query=b"q=1"),
        "multipart": upload(b"x1", form(b"x1")),
        "none": ask(body, None),
    }
    assert {kind: made[kind].hex() for kind in made} == {
        "raw": "010eaa297ce555ecf37e3eeaa1b669ed031a2b73b80f4fcae4914e3884e093670f",
        "json": "01eb4e415bab80e31755b9f859e7c7b8c5294580d0d2872289d2d8008e5f2282bf",
        "fields": "0181f5962216fa659af453bf73cb6d6314322123288ba6360450e531154758e7bb",
        "function": "015eeacc5c259c1febc2f8855cf9c78aa90a313b5fc999c1b3f66a47f15bd31afc",
        "multipart": "01744e848dbfb4fbdd4a16641a56179d082bec960d3d57dcf86a67c992e8ab416c",
        "none": "011491b82c628d3fee5794ae20ea6fc41afae3a093333ec03dd37a7d0e99e90159",
    }


def test_what_is_long_is_not_remembered() -> None:
    """Whoever sends long queries or media types does not fill the memory of the process with them."""
    module = import_module("retrysafe._core.fingerprint")
    for number in range(20):
        query, media = b"%d&" % number + b"q" * 5000, b"text/x%d; a=" % number + b"b" * 5000
        one = Request("POST", "/", query, [(b"content-type", media)])
        other = Request("POST", "/", query + b"!", [(b"content-type", media)])
        assert fingerprint("raw", one, InMemory(b"")) == fingerprint("raw", one, InMemory(b""))
        assert fingerprint("raw", one, InMemory(b"")) != fingerprint("raw", other, InMemory(b""))
    before = module._head.cache_info().currsize, module._media_type.cache_info().currsize
    fingerprint("raw", Request("POST", "/", b"y" * 5000, [(b"content-type", b"z" * 5000)]), InMemory(b""))
    assert (module._head.cache_info().currsize, module._media_type.cache_info().currsize) == before
