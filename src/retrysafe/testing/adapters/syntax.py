"""Header syntax: what is a key, and that whatever is not one runs nothing."""

import pytest

from retrysafe.testing.adapters.server import Server
from retrysafe.testing.adapters.suite import Suite, assert_problem, assert_replay, covers, fresh

MALFORMED = {
    "bad-escape": rb'"a\x"',
    "unterminated": b'"a',
    "trailing-garbage": b'"a"zzz',
    "two-items": b'"a", "b"',
    "bare-with-comma": b"a,b",
    "bare-with-space": b"a b",
    "bare-with-quote": b'a"b',
    "token-and-string": b'a "b"',
}
NOT_TEXT = {
    "obs-text": b'"caf\xe9-0123456789abcdef"',
    "utf-8": '"schlüssel-0123456789abcdef"'.encode(),
    "bare-obs-text": b"caf\xe9-0123456789abcdef",
    "escape": b'"\x1b[31m-0123456789abcdef"',
    "tab-inside": b'"a\tb"',
    "delete": b'"a\x7fb"',
    "nul": b'"a\x00b"',
}


class Syntax(Suite):
    @covers(1)
    def test_a_quoted_key_is_accepted(self, api: Server, label: str) -> None:
        """The form of the specification, an RFC 9651 String, runs the handler once."""
        raw = f'"{fresh()}"'
        reply = api.post("/charges", fields=[("Idempotency-Key", raw)], label=label)
        assert reply.status == 201
        assert api.effects(label) == 1

    @covers(2)
    def test_the_same_key_runs_once(self, api: Server, key: str, label: str) -> None:
        """The promise in its shortest form."""
        first = api.post("/charges", key=key, label=label)
        assert_replay(first, api.post("/charges", key=key, label=label))
        assert api.effects(label) == 1

    @covers(3)
    def test_bare_and_quoted_are_one_key(self, api: Server, label: str) -> None:
        """Most APIs take bare keys: a client that changes its habit does not pay twice."""
        key = fresh()
        bare = [("Idempotency-Key", key)]
        first = api.post("/charges", fields=bare, label=label)
        assert first.status == 201
        assert_replay(first, api.post("/charges", key=key, label=label))
        assert api.effects(label) == 1

    @covers(3)
    def test_parameters_and_white_space_are_not_part_of_the_key(
        self, api: Server, key: str, label: str
    ) -> None:
        """RFC 9651 lets an Item have parameters; a proxy may add white space around a value."""
        first = api.post("/charges", key=key, label=label)
        for raw in (f'  "{key}"\t', f'"{key}";v=1;w'):
            retry = api.post("/charges", fields=[("Idempotency-Key", raw)], label=label)
            assert_replay(first, retry)
        assert api.effects(label) == 1

    @covers(4)
    @pytest.mark.parametrize("name", ["idempotency-key", "IDEMPOTENCY-KEY", "iDEMPOTENCY-kEY"])
    def test_the_name_has_no_case(self, api: Server, key: str, label: str, name: str) -> None:
        """RFC 9110 section 5.1."""
        first = api.post("/charges", key=key, label=label)
        assert_replay(first, api.post("/charges", fields=[(name, f'"{key}"')], label=label))
        assert api.effects(label) == 1

    @covers(5, 6)
    @pytest.mark.parametrize("values", [('"a"', '"b"'), ('"a"', '"a"'), ("a", "b"), ("a", "a")])
    def test_two_field_lines_are_refused(self, api: Server, label: str, values: tuple[str, str]) -> None:
        """Which one did the client mean?  Not even two equal ones are taken for one."""
        fields = [("Idempotency-Key", value) for value in values]
        assert_problem(api.post("/charges", fields=fields, label=label), 400, "key-invalid")
        assert api.effects(label) == 0

    @covers(7)
    def test_escapes_are_undone(self, api: Server, label: str) -> None:
        r"""`"a\"b\\c"` is the key `a"b\c`: it replays, and is not the key without the escape."""
        unique = fresh()
        raw = f'"{unique}\\"b\\\\c"'
        first = api.post("/charges", fields=[("Idempotency-Key", raw)], label=label)
        assert first.status == 201
        assert_replay(first, api.post("/charges", key=unique + '"b\\c', label=label))
        assert not api.post("/charges", key=unique + '"bc', label=label).replayed
        assert api.effects(label) == 2

    @covers(8)
    @pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED.keys())
    def test_a_malformed_key_is_refused(self, api: Server, label: str, raw: bytes) -> None:
        """A client that sends a key wants protection: to ignore a bad one would run unprotected."""
        reply = api.post("/charges", fields=[("Idempotency-Key", raw)], label=label)
        assert_problem(reply, 400, "key-invalid")
        assert api.effects(label) == 0

    @covers(10)
    @pytest.mark.parametrize("raw", NOT_TEXT.values(), ids=NOT_TEXT.keys())
    def test_what_is_not_printable_ascii_is_refused(self, api: Server, label: str, raw: bytes) -> None:
        """Stores compare and logs print keys: neither meets a byte that could surprise it.

        Servers turn some of these away by themselves, so only status and effect are looked at.
        """
        reply = api.post("/charges", fields=[("Idempotency-Key", raw)], label=label)
        assert reply.status == 400
        assert api.effects(label) == 0

    @covers(11)
    @pytest.mark.parametrize("raw", ['""', "", "   ", '"" ;a=1'])
    def test_an_empty_key_is_refused(self, api: Server, label: str, raw: str) -> None:
        """An unset variable in a client must not become a key that all share."""
        reply = api.post("/charges", fields=[("Idempotency-Key", raw)], label=label)
        assert_problem(reply, 400, "key-invalid")
        assert api.effects(label) == 0

    @covers(12)
    def test_the_longest_key(self, api: Server, label: str) -> None:
        """255 characters work to the last one: keys that differ only there are two keys."""
        longest = fresh().ljust(255, "x")
        first = api.post("/charges", key=longest, label=label)
        assert_replay(first, api.post("/charges", key=longest, label=label))
        other = api.post("/charges", key=longest[:-1] + "y", label=label)
        assert other.status == 201
        assert not other.replayed
        assert api.effects(label) == 2

    @covers(12)
    @pytest.mark.parametrize("quote", ['"', ""])
    def test_a_longer_key_is_refused(self, api: Server, label: str, quote: str) -> None:
        """Truncated, it would be another client's."""
        raw = quote + fresh().ljust(256, "x") + quote
        reply = api.post("/charges", fields=[("Idempotency-Key", raw)], label=label)
        assert_problem(reply, 400, "key-invalid")
        assert api.effects(label) == 0

    @covers(12)
    def test_a_public_key_must_be_hard_to_guess(self, api: Server, label: str) -> None:
        """Without a principal the key is the only secret: 16 characters at least."""
        short = api.post("/charges", user=None, key=fresh()[-15:], label=label)
        assert_problem(short, 400, "key-invalid")
        assert api.effects(label) == 0
        key = fresh()[-16:]
        first = api.post("/charges", user=None, key=key, label=label)
        assert_replay(first, api.post("/charges", user=None, key=key, label=label))
        assert api.effects(label) == 1

    @covers(18)
    def test_keys_are_compared_exactly(self, api: Server, key: str, label: str) -> None:
        """Upper and lower case, and an inner space at the end, make different keys."""
        for variant in (key, key.upper(), key + " "):
            reply = api.post("/charges", key=variant, label=label)
            assert reply.status == 201
            assert not reply.replayed
        assert api.effects(label) == 3
