"""What a response is, by the wire of the application under test: a replay, a refusal, or a handler's own.

Where no guard, wire or profile is given, the names of all profiles count: most applications need none.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple
from uuid import uuid4

from retrysafe import profiles
from retrysafe._core import headers
from retrysafe._core.model import Response
from retrysafe._core.problems import CATALOGUE, Code, retry_hints, stored_code
from retrysafe._http.render import ABOUT_THE_BODY
from retrysafe.guard import Guard
from retrysafe.policy import Wire
from retrysafe.profiles import Profile
from retrysafe.testing.assertions.clients import Reply


class Recognised(NamedTuple):
    """The wires that the application may have, and what is its own."""

    wires: tuple[Wire, ...]
    key_header: str
    ignored: frozenset[bytes]
    """Headers that may differ between a response and its replay."""

    def new_key(self) -> str:
        """A key that was never sent, in the form that the wire asks for."""
        wire = self.wires[0]
        key = str(uuid4())[: wire.longest_key]
        return f'"{key}"' if wire.strict_keys else key

    @property
    def marker(self) -> str:
        """What a replay is marked with, for a message; so are the next two."""
        return f"{self.wires[0].replayed_header}: true"

    @property
    def unstored(self) -> str:
        return f"{self.wires[0].stored_header}: false"

    @property
    def tombstone(self) -> str:
        return f"{self.wires[0].body_header}: omitted"

    def is_replay(self, reply: Reply) -> bool:
        return self._said(reply, "replayed_header", b"true")

    def is_unstored(self, reply: Reply) -> bool:
        return self._said(reply, "stored_header", b"false")

    def is_tombstone(self, reply: Reply) -> bool:
        return self._said(reply, "body_header", b"omitted")

    def problem(self, reply: Reply) -> Code | None:
        """Which problem of the library's it is."""
        code = stored_code(Response(reply.status, reply.headers, reply.body))
        if code is not None:
            return code
        # An API's own envelope hides the code; status and hints are the same in every envelope.
        for wire in self.wires:
            if wire.render_problem is not None:
                for known in ("key-reused", "in-flight"):
                    if _is_enveloped(reply, known, wire):
                        return known
        return None

    def status(self, code: Code) -> int:
        """The status of a problem; of several wires the first one's, which is the library's own."""
        return self.wires[0].status(code)

    def is_in_flight(self, reply: Reply) -> bool:
        """Refused for the moment, and says when to come back."""
        return reply.status in {wire.status("in-flight") for wire in self.wires} and bool(
            headers.find(reply.headers, b"retry-after")
        )

    def replayed_statuses(self, first: Reply) -> set[int]:
        """What a replay of this response may have as its status where only a tombstone was stored."""
        empty = first.status < 400 and any(wire.tombstone == "empty-200" for wire in self.wires)
        return {first.status, 200} if empty else {first.status}

    def stored_headers(self, reply: Reply, *, about_the_body: bool = True) -> dict[str, list[str]]:
        """The headers that are stored and replayed, by name, each with its values in their order."""
        found: dict[str, list[str]] = {}
        for name, value in headers.kept(reply.headers, self.ignored):
            if name != headers.ORIGINAL_ID and (about_the_body or name not in ABOUT_THE_BODY):
                found.setdefault(name.decode(), []).append(value.decode("utf-8", "backslashreplace"))
        return found

    def _said(self, reply: Reply, field: str, value: bytes) -> bool:
        names = {getattr(wire, field).lower().encode() for wire in self.wires}
        return any(name in names and found.lower() == value for name, found in reply.headers)


def _is_enveloped(reply: Reply, code: Code, wire: Wire) -> bool:
    if reply.status != wire.status(code):
        return False
    names = tuple(name.lower().encode() for name in wire.should_retry_headers)
    sent = dict(reply.headers)
    hints = retry_hints(CATALOGUE[code].retry, 1.0, names)
    return all(sent.get(name) == value if name in names else name in sent for name, value in hints)


def recognised(
    *,
    guard: Guard | None,
    wire: Wire | None,
    profile: str | Profile | None,
    key_header: str | None,
    ignore_headers: Collection[str],
) -> Recognised:
    """What the caller says about the wire; of guard, wire and profile at most one."""
    given: Mapping[str, object] = {"guard": guard, "wire": wire, "profile": profile}
    several = [name for name, value in given.items() if value is not None]
    if len(several) > 1:
        raise TypeError(f"{' and '.join(f'{name}=' for name in several)} were given: give one of them")
    wires: tuple[Wire, ...]
    dropped: Collection[str] = ()
    if guard is not None:
        if not isinstance(guard, Guard):
            raise TypeError(f"guard={guard!r} is not a Guard")
        wires, dropped = (guard.wire,), guard.options.get("drop_headers", ())
    elif wire is not None:
        if not isinstance(wire, Wire):
            raise TypeError(f"wire={wire!r} is not a Wire")
        wires = (wire,)
    elif profile is not None:
        wires = (profile.wire if isinstance(profile, Profile) else profiles.get(profile).wire,)
    else:
        wires = (Wire(), *(one.wire for one in profiles.PROFILES.values()))
    if isinstance(ignore_headers, str):
        raise TypeError(
            f'ignore_headers={ignore_headers!r} must be a tuple of names, such as ("X-Served-By",)'
        )
    ignored = {name.lower().encode() for name in (*ignore_headers, *dropped)}
    for one in wires:
        own = [name for field, name in one._asdict().items() if field.endswith("_header") and name]
        ignored.update(name.lower().encode() for name in own)
    return Recognised(wires, key_header or wires[0].key_header, frozenset(ignored))
