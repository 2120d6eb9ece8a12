"""Fidelity: what comes out is what went in, to the byte."""

import pytest

from retrysafe._core.model import Door, Final, Response
from retrysafe.testing.stores.harness import Half, Harness, a_claim, the_record

BODIES = {
    "empty": b"",
    "every byte": bytes(range(256)),
    "zero bytes": b"\0" * 1000,
    "not UTF-8": b"\xc3\x28\xff\xfe",
    "a mebibyte": bytes(range(256)) * 4096,
}

HOSTILE = {
    "accents": "Zoë Müller, naïve café",
    "decomposed": "e\u0301 is not é",
    "right to left": "\u202egnirts",
    "astral": "🔑 \U0001d528 \U0010ffff",
    "quotes": "'; DROP TABLE retrysafe_records; -- \"`\\",
    "controls": "a\x01\x1b[31m\r\n\tb\x7f",
    "JSON": '["a", {"b": null}]',
    "space": "  both ends  ",
    "empty": "",
    "long": "k" * 5000,
}


class Fidelity(Harness):
    """Round trips."""

    @pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
    def test_bodies_are_bytes(self, half: Half, body: bytes) -> None:
        """No encoding, no normalising, no trimming."""
        claim = a_claim()
        half.reserve(claim)
        half.finish(claim, Final("completed", Response(200, (), body)))
        response = the_record(half, claim).response
        assert response is not None
        assert response.body == body

    def test_headers_are_pairs_in_order(self, half: Half) -> None:
        """Repeated names stay apart and in order, values with commas unsplit, odd octets as they are."""
        headers = (
            (b"link", b'</a>; rel="next"'),
            (b"x-empty", b""),
            (b"link", b"</b>; rel=prev, </c>; rel=last"),
            (b"Mixed-Case", b"Kept"),
            (b"x-octets", bytes(range(0x80, 0x100)) + b'\t"\\'),
            (b"!#$%&'*+-.^_`|~09", b"every kind of token character"),
        )
        claim = a_claim()
        half.reserve(claim)
        half.finish(claim, Final("completed", Response(200, headers)))
        response = the_record(half, claim).response
        assert response is not None
        assert response.headers == headers

    @pytest.mark.parametrize("status", [200, 204, 301, 404, 500, 599])
    def test_statuses_are_kept(self, half: Half, status: int) -> None:
        """Whatever a final response may have."""
        claim = a_claim()
        half.reserve(claim)
        half.finish(claim, Final("completed", Response(status)))
        response = the_record(half, claim).response
        assert response is not None
        assert response.status == status

    @pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
    def test_text_is_text(self, half: Half, text: str) -> None:
        """Scope, key, action, target and request ids are data, whatever they look like."""
        claim = a_claim()._replace(
            scope=((text, text), ("user", text)),
            key=text,
            action=text,
            target=text,
            request_id=text,
            correlation_id=text,
        )
        half.reserve(claim)
        record = the_record(half, claim)
        assert (record.scope, record.key, record.action) == (claim.scope, text, text)
        assert (record.target, record.request_id, record.correlation_id) == (text, text, text)

    def test_what_is_not_there_stays_away(self, half: Half) -> None:
        """No key and no correlation id are not the same as empty ones, and a scope may have no parts."""
        claim = a_claim()._replace(key=None, correlation_id=None, scope=())
        half.reserve(claim)
        record = the_record(half, claim)
        assert (record.key, record.correlation_id, record.scope) == (None, None, ())

    @pytest.mark.parametrize("door", ["request", "callback", "operation"])
    def test_every_door_writes_the_same_record(self, half: Half, door: Door) -> None:
        """Requests, callbacks and operations are kept alike."""
        claim = a_claim()._replace(door=door)
        half.reserve(claim)
        assert the_record(half, claim).door == door
