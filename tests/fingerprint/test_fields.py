"""Chosen fields: which part of a document a path names, and what counts as different."""

import pytest

from retrysafe._core.fingerprint.canonical import parse
from retrysafe._core.fingerprint.fields import choose


def chosen(body: bytes, *paths: str) -> bytes:
    return choose(parse(body), paths)


@pytest.mark.parametrize(
    ("paths", "one", "other"),
    [
        (["a"], b'{"a":1,"b":2}', b'{"b":3,"a":1.0}'),
        (["a.b"], b'{"a":{"b":[1,{"x":1,"y":2}],"c":1}}', b'{"a":{"b":[1,{"y":2,"x":1}]}}'),
        (["/a.b/c"], b'{"a.b":{"c":1},"z":1}', b'{"a.b":{"c":1}}'),
        (["/a~1b", "/a~0b", "/"], b'{"a/b":1,"a~b":2,"":3}', b'{"":3,"a~b":2,"a/b":1,"x":0}'),
        (["a.1.b"], b'{"a":[0,{"b":1}]}', b'{"a":[7,{"b":1,"c":2},8]}'),
        (["0.a"], b'[{"a":1},2]', b'[{"a":1},3]'),
        (["a.b"], b'{"a":{"x":1}}', b'{"a":{}}'),
        (["a"], b"{}", b'{"b":1}'),
    ],
)
def test_the_rest_does_not_matter(paths: list[str], one: bytes, other: bytes) -> None:
    """Whatever no path names may change between a request and its retry."""
    assert chosen(one, *paths) == chosen(other, *paths)


@pytest.mark.parametrize(
    ("paths", "one", "other"),
    [
        (["a"], b'{"a":1}', b'{"a":2}'),
        (["a"], b'{"a":1}', b'{"a":"1"}'),
        (["a"], b'{"a":null}', b"{}"),
        (["a"], b'{"a":"?0"}', b"{}"),
        (["a.b"], b'{"a":{}}', b"{}"),
        (["a.b"], b'{"a":null}', b'{"a":{}}'),
        (["a.b"], b'{"a":"x"}', b'{"a":"y"}'),
        (["a.b"], b'{"a":[1]}', b'{"a":[2]}'),
        (["a.2"], b'{"a":[1]}', b'{"a":[2]}'),
        (["a.01"], b'{"a":[1,2]}', b'{"a":[1,3]}'),
        (["a"], b"[1]", b"[2]"),
        (["a"], b'"x"', b'"y"'),
        (["a.b"], b'{"a.b":1,"a":{"b":1}}', b'{"a.b":1,"a":{"b":2}}'),
        (["/a.b"], b'{"a.b":1,"a":{"b":1}}', b'{"a.b":2,"a":{"b":1}}'),
        (["a", "b"], b'{"a":"1","b":"23"}', b'{"a":"12","b":"3"}'),
        (["a", "b"], b'{"a":1}', b'{"b":1}'),
    ],
)
def test_the_fields_matter(paths: list[str], one: bytes, other: bytes) -> None:
    """A changed field is another request; so is one that went missing or turned into something else."""
    assert chosen(one, *paths) != chosen(other, *paths)


def test_the_paths_matter() -> None:
    """A deployment that chooses other fields does not take old records for its own."""
    body = b'{"a":1,"b":1}'
    assert chosen(body, "a") != chosen(body, "b")
    assert chosen(body, "a", "b") != chosen(body, "b", "a")
