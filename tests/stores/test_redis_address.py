"""What addresses of Redis mean, and which are refused."""

import pytest

from retrysafe import stores
from retrysafe.errors import ConfigurationError
from retrysafe.stores.redis.address import Address, Node


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://host", {"nodes": (Node("host", 6379),), "has_tls": False, "is_cluster": False}),
        ("redis://:p%40ss@host:7/3", {"nodes": (Node("host", 7),), "password": "p@ss", "database": 3}),
        ("valkey://me:pw@host/", {"user": "me", "password": "pw", "database": 0}),
        ("rediss://host", {"has_tls": True}),
        ("valkeys://host?ssl_ca_certs=/ca.pem&ssl_check_hostname=0", {"has_tls": True}),
        ("redis://[::1]:6380/1", {"nodes": (Node("::1", 6380),), "database": 1}),
        ("redis://", {"nodes": (Node("localhost", 6379),)}),
        ("redis+unix:///run/redis.sock?db=2", {"nodes": (Node("/run/redis.sock", 0),), "database": 2}),
        ("redis+unix://:pw@/run/a%20b.sock", {"nodes": (Node("/run/a b.sock", 0),), "password": "pw"}),
        (
            "rediss+cluster://:pw@one:1,two:2",
            {"nodes": (Node("one", 1), Node("two", 2)), "is_cluster": True, "has_tls": True},
        ),
        ("redis://host?wait=1&wait_timeout=0.2", {"wait": 1, "wait_timeout": 0.2}),
        ("redis://host?prefix=shop&create=1&eviction=accept", {"prefix": "shop", "creates": True}),
    ],
)
def test_addresses(url: str, expected: dict[str, object]) -> None:
    """Each part is read as it is written, percent-encoding undone."""
    address = Address.parse(url)
    assert {name: getattr(address, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://:hunter2@host/zero", "not a number"),
        ("redis://:hunter2@host:port", "not a valid address"),
        ("redis://:hunter2@one,two", r"redis\+cluster://"),
        ("redis+cluster://:hunter2@one/1", "no databases"),
        ("redis+unix://:hunter2@host/run/redis.sock", "a path and no host"),
        ("redis+unix:///", "a path and no host"),
        ("redis://:hunter2@host?timeout=5", "'timeout' is not an option"),
        ("redis://:hunter2@host?ssl_ca_certs=/ca.pem", "rediss://"),
        ("rediss://:hunter2@host?ssl_cert_reqs=maybe", "none, optional or required"),
        ("redis://:hunter2@host?wait=one", "whole number"),
        ("redis://:hunter2@host?wait_timeout=1", "without wait"),
        ("redis://:hunter2@host?wait=1&wait_timeout=0", "greater than 0"),
        ("redis://:hunter2@host?create=yes", "0 or 1"),
        ("redis://:hunter2@host?eviction=yes", "accept or refuse"),
        ("redis://:hunter2@host?prefix=a{b}", "braces"),
        ("redis://:hunter2@host?prefix=", "is empty"),
        ("redis+sentinel://:hunter2@host", "not a known scheme"),
        ("redis://user:hunter2#@host:6379/0", "write %23"),
        ("redis://:hunter2\udcff@host", "not a valid address"),
        ("redis://:hunter2@host:0", "not a valid address"),
        ("redis://:hunter2@host/0?db=3", "twice"),
        ("redis://:hunter2@host?wait=1&wait=2", "twice"),
        ("redis://:hunter2@host?wait=1&wait_timeout=2", "deadline 2 s"),
    ],
)
def test_refused_addresses(url: str, says: str) -> None:
    """When the store is made, with what was found and what is expected; never with the password."""
    with pytest.raises(ConfigurationError, match=says) as refused:
        stores.open(url)
    assert "hunter2" not in str(refused.value)


def test_every_scheme_opens() -> None:
    """Without a connection: the first operation makes one."""
    for scheme in stores.SCHEMES:
        if scheme.startswith(("redis", "valkey")):
            store = stores.open(f"{scheme}:///run/socket" if scheme.endswith("unix") else f"{scheme}://host")
            assert "Redis" in repr(store)
            store.close()
