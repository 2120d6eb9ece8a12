"""How connections are opened: what an address says, and what it leaves open.

    mysql://user:password@host:3306/database?ssl-ca=/etc/ca.pem
    mariadb://user:password@/database?unix_socket=/run/mysqld/mysqld.sock

What the address says is what is done.  A parameter that is not known is refused, because it would be ignored,
and a message never repeats a value: it may be the password.
"""

import math
import socket
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from retrysafe.errors import ConfigurationError

EXAMPLE = "mysql://user:password@host:3306/database"

_LEAST_TIMEOUT = 2
"""Seconds to open a connection.  Shorter ones would refuse a server that is only far away."""

_SSL_MODES = ("disabled", "preferred", "required", "verify_ca", "verify_identity")
"""Those of MySQL's own clients."""

_PARAMETERS = ("unix_socket", "ssl_mode", "ssl_ca", "ssl_cert", "ssl_key", "connect_timeout")
"""With `-` or `_` between the words, as option files and URLs have them."""

_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 10_000}
"""Half a minute after the last word a silent peer is asked, then every ten seconds, three times; and
milliseconds until what was sent must have arrived."""


class Address(NamedTuple):
    host: str
    port: int
    user: str | None
    password: str
    database: str
    unix_socket: str | None
    ssl_mode: str
    ssl_ca: str | None
    ssl_cert: str | None
    ssl_key: str | None
    timeout: float
    """Seconds to open a connection."""

    def __repr__(self) -> str:
        return f"<the address of the database {self.database!r}>"  # and no password in a traceback

    @classmethod
    def parse(cls, url: str, deadline: float) -> "Address":
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise ConfigurationError(
                f"this is not a valid address of MySQL or MariaDB: expected {EXAMPLE}, with special "
                "characters "
                "percent-encoded"
            ) from None
        if not url.partition(":")[2].startswith("//"):
            raise ConfigurationError(f"an address of MySQL or MariaDB needs two slashes: {EXAMPLE}")
        database = unquote(parts.path.removeprefix("/"))
        if not database or "/" in database:
            raise ConfigurationError(f"the address names no database: expected {EXAMPLE}")
        if parts.fragment:
            raise ConfigurationError(f"the address has a # in it: write %23; expected {EXAMPLE}")
        given = _parameters(parts)
        mode = given.get("ssl_mode", "").lower().replace("-", "_")
        secured = "ssl_ca" in given or "ssl_cert" in given
        if not mode:
            mode = "verify_identity" if "ssl_ca" in given else "required" if secured else "preferred"
        if mode not in _SSL_MODES:
            raise ConfigurationError(f"ssl-mode is not one of {', '.join(_SSL_MODES)}")
        if mode == "verify_ca" and "ssl_ca" not in given:
            raise ConfigurationError(
                "ssl-mode=verify_ca needs ssl-ca=, the file with the authority's certificate"
            )
        if mode in ("disabled", "preferred") and secured:
            raise ConfigurationError(
                f"ssl-mode={mode} would ignore ssl-ca, ssl-cert and ssl-key: leave it out"
            )
        if "unix_socket" in given and mode not in ("disabled", "preferred"):
            raise ConfigurationError(
                "unix_socket= leads to this machine, and its connections are not encrypted: leave ssl-mode, "
                "ssl-ca, ssl-cert and ssl-key out"
            )
        if "ssl_key" in given and "ssl_cert" not in given:
            raise ConfigurationError("ssl-key= needs ssl-cert=, the file with the certificate")
        return cls(
            host=parts.hostname or "localhost",
            port=port or 3306,
            user=None if parts.username is None else unquote(parts.username),
            password=unquote(parts.password or ""),
            database=database,
            unix_socket=given.get("unix_socket"),
            ssl_mode=mode,
            ssl_ca=given.get("ssl_ca"),
            ssl_cert=given.get("ssl_cert"),
            ssl_key=given.get("ssl_key"),
            timeout=_timeout(given, deadline),
        )

    @property
    def secret(self) -> bytes:
        """The password as clients that set it in UTF-8 have it: drivers would make Latin-1 of text."""
        return self.password.encode()

    def settled(self, *, has_tls: bool) -> "Address":
        """The same, saying what comes of `preferred`."""
        if self.ssl_mode != "preferred":
            return self
        return self._replace(ssl_mode="required" if has_tls else "disabled")

    def connect(self) -> socket.socket:
        """A socket to the server, for drivers that are given one."""
        if self.unix_socket is not None:
            opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                opened.settimeout(self.timeout)
                opened.connect(self.unix_socket)
            except BaseException:
                opened.close()
                raise
            return opened
        opened = socket.create_connection((self.host, self.port), self.timeout)
        set_options(opened)
        return opened

    def tls(self) -> ssl.SSLContext | None:
        """How the connection is encrypted; `None`: it is not."""
        if self.ssl_mode == "disabled" or self.unix_socket is not None:
            return None
        if self.ssl_mode in ("preferred", "required"):
            # No authority is asked, and to load all of the machine's takes longer than to connect.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        else:
            context = ssl.create_default_context(cafile=self.ssl_ca)
            context.check_hostname = self.ssl_mode == "verify_identity"
            # Certificates that MySQL makes by itself do not pass Python's strictest check.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.ssl_cert is not None:
            context.load_cert_chain(self.ssl_cert, self.ssl_key)
        return context


def set_options(opened: socket.socket) -> None:
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # systems differ
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _parameters(parts: SplitResult) -> Mapping[str, str]:
    try:
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise ConfigurationError(
            "the parameters of the address are not pairs such as ssl-ca=/etc/ca.pem, with & between them"
        ) from None
    given: dict[str, str] = {}
    for spelled, value in pairs:
        name = spelled.lower().replace("-", "_")
        if name not in _PARAMETERS:
            known = ", ".join(
                each.replace("_", "-") if each.startswith("ssl") else each for each in _PARAMETERS
            )
            raise ConfigurationError(
                f"the address has a parameter that is not known, {spelled!r}: expected {known}"
            )
        if name in given or not value:
            raise ConfigurationError(f"the address has {spelled!r} twice, or without a value")
        given[name] = value
    return given


def _timeout(given: Mapping[str, str], deadline: float) -> float:
    text = given.get("connect_timeout")
    if text is None:
        return max(_LEAST_TIMEOUT, math.ceil(deadline))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise ConfigurationError("connect_timeout is not a number of seconds")
    return seconds
