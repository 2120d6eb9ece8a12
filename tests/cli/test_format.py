"""What is shown of data: cleaned, masked, redacted, cut; and durations as people write them."""

import json
import os
import time

import pytest
import typer

from retrysafe._core import keys
from retrysafe.cli import body_preview, prompt, redaction
from retrysafe.cli.format import clean, duration, iso, plural, relative, size_text, timestamp


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("/orders/7", "/orders/7"),
        ("zażółć 注文 ✓", "zażółć 注文 ✓"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b31m", "\\x9b31m"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x00\x07\x7f", "\\x00\\x07\\x7f"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("a\u200bb", "a\\u200bb"),
        ("\udcff", "\\udcff"),
        ("\U000e0041", "\\U000e0041"),
        ("[bold]x[/bold]", "[bold]x[/bold]"),
    ],
)
def test_cleaning(raw: str, shown: str) -> None:
    """What a terminal would act upon is escaped; what people write is left alone."""
    assert clean(raw) == shown
    assert clean(raw).isprintable()


def test_masking_tells_neither_the_key_nor_its_length() -> None:
    """Up to four characters, never more than a third of the key, and the same dots after every one."""
    assert keys.mask("pay_2026_11_15_0001") == "pay_••••"
    assert keys.mask("pay_2026_11_") == "pay_••••"
    assert keys.mask("pay_2026_11") == "pay••••"
    assert keys.mask("k") == keys.mask("kk") == "••••"


def test_short_keys_can_be_told_apart() -> None:
    """Of a key of seven characters two are shown: nothing but dots would make all short keys look alike."""
    assert keys.mask("k-12345") == "k-••••"
    assert keys.mask("order-7") != keys.mask("k-12345")
    for length in range(1, 256):
        shown = keys.mask("x" * length).removesuffix("••••")
        assert len(shown) <= 4
        assert 3 * len(shown) <= length


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("90s", 90),
        ("10m", 600),
        ("1h", 3600),
        ("1h30m", 5400),
        ("2d", 172800),
        ("1w", 604800),
        ("1.5h", 5400),
        ("0s", 0),
    ],
)
def test_durations(written: str, seconds: float) -> None:
    """Numbers with units, also several."""
    assert duration(written) == seconds


@pytest.mark.parametrize("written", ["", "5", "h", "1x", "-1h", "1h!", "1e9d", "nan", "\u0661h", "9999999w"])
def test_no_durations(written: str) -> None:
    """Anything else is refused with an example of what would do."""
    with pytest.raises(typer.BadParameter, match=r"duration|century"):
        duration(written)


def test_times() -> None:
    """ISO 8601 in UTC for programs; no time at all for what is beyond any calendar."""
    assert iso(0.5) == "1970-01-01T00:00:00.500Z"
    assert timestamp(86400) == "1970-01-02 00:00:00 UTC"
    assert [iso(at) for at in (None, 1e300, float("nan"), float("inf"))] == [None] * 4
    assert relative(100, 100) == "just now"
    assert relative(40, 100) == "60 seconds ago"
    assert relative(100 + 7200, 100) == "in 2 hours"
    assert relative(101, 100) == "in 1 second"


@pytest.mark.parametrize(
    "name",
    (
        "password Passwd user_password newPassword token access_token accessToken refreshtokens secret "
        "client_secret clientSecret Authorization X-Api-Key api_key apikey apiKey private_key card "
        "card_number cardNumber cards pan PAN cvc cvv Set-Cookie session_id jwt pin otp iban "
        "accountNumber Idempotency-Key"
    ).split(),
)
def test_secret_names(name: str) -> None:
    """Names of secrets, in whichever spelling."""
    assert redaction.is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "amount",
        "author",
        "payment",
        "expand",
        "spinning",
        "description",
        "company",
        "cardinality",
        "key",
        "id",
        "discarded",
        "Location",
        "content-type",
        "etag",
        "shipping",
        "status",
        "address",
    ],
)
def test_harmless_names(name: str) -> None:
    """Words that only contain one are left alone."""
    assert not redaction.is_secret(name)


def test_redaction_of_json() -> None:
    """Secrets are hidden by name and by shape, however deep; the rest is as it was."""
    value = {
        "amount": 10,
        "card": {"number": "4242"},
        "deep": [[{"apiKey": "sk_live", "ok": "yes"}]],
        "note": "paid with 4242 4242 4242 4242 today",
        "order": 4111111111111111,
        "reference": "4242424242424241",
        "header": "Bearer abcdefghijkl",
        "jwt_like": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "token": None,
    }
    shown = json.dumps(redaction.redacted(value))
    for secret in ("4242 4242", '"4242"', "sk_live", "4111111111111111", "abcdefghijkl", "eyJ"):
        assert secret not in shown
    # No card number: it does not pass the check that all of them pass.
    assert '"reference": "4242424242424241"' in shown
    assert '"amount": 10' in shown
    assert '"ok": "yes"' in shown


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("user=ada&password=hunter2&x=1", "user=ada&password=<redacted>&x=1"),
        ("token: abc def", "token: <redacted> def"),
        ("<order><cvc>123</cvc><id>7</id></order>", "<order><cvc><redacted></cvc><id>7</id></order>"),
        ('{"password": "hunter2", "broken', '{"password": <redacted>, "broken'),
        ("/payments/7?token=abc", "/payments/7?token=<redacted>"),
        ("all is well: 7 of 7", "all is well: 7 of 7"),
        ("see https://example.com/?token=abc&x=1", "see https://example.com/?token=<redacted>&x=1"),
        ("<a>x<pin>123</pin></a>", "<a>x<pin><redacted></pin></a>"),
        ("x-eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln, ok", "x-<redacted>, ok"),
        ("eyJhbGciOiJIUzI1NiJ9 has no dot.", "eyJhbGciOiJIUzI1NiJ9 has no dot."),
    ],
)
def test_redaction_of_text(raw: str, shown: str) -> None:
    """In text that is not JSON, what is assigned to a secret name is hidden."""
    assert redaction.redacted_text(raw) == shown


def test_previews() -> None:
    """JSON is set out, text is shown in lines, bytes in hexadecimal, and all of it is cut where asked."""
    assert body_preview.preview(b"", 100) == body_preview.Preview("empty", (), False)
    assert body_preview.preview(b'{"a":{"password":"x"}}', 100).lines == (
        "{", '  "a": {', '    "password": "<redacted>"', "  }", "}",
    )  # fmt: skip
    assert body_preview.preview("grüße\n\x1b[2J".encode(), 100) == body_preview.Preview(
        "text", ("grüße", "\\x1b[2J"), False
    )
    assert body_preview.preview(b"x" * 50, 10) == body_preview.Preview("text", ("x" * 10,), True)
    dump = body_preview.preview(bytes(range(256)), 10)
    assert (dump.kind, len(dump.lines), dump.cut) == ("binary", 8, True)
    assert dump.lines[2] == "000020  20 21 22 23 24 25 26 27 28 29 2a 2b 2c 2d 2e 2f   !\"#$%&'()*+,-./"


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b"\xff\xfe", b"1" * 10_000, b'"text"', b"\x00" * 10, b"NaN"]
)
def test_previews_of_the_odd(body: bytes) -> None:
    """Whatever was stored can be looked at."""
    lines = body_preview.preview(body, 1000).lines
    assert all(line.isprintable() for line in lines)
    assert all(line.isprintable() for line in body_preview.whole(body))


@pytest.mark.parametrize("depth", [300, 600, 750, 900, 990])
def test_previews_of_the_deep(depth: int) -> None:
    """JSON that can be read but not be set out is shown as the text that it is, secrets hidden."""
    body = b'{"a":' * depth + b'{"password":"hunter2"}' + b"}" * depth
    seen = body_preview.preview(body, 1_000_000)
    assert seen.kind in ("json", "text")
    assert "hunter2" not in "".join(seen.lines)
    assert "<redacted>" in "".join(seen.lines)


@pytest.mark.parametrize("limit", [2000, 1_000_000])
@pytest.mark.parametrize(
    "body",
    [
        "eyJaaaaaaaa-" * 80_000,
        "a." * 500_000,
        "eyJ" + "a" * 1_000_000,
        "<" + "a" * 1_000_000,
        "<aa " * 250_000,
        "aa" + " " * 1_000_000,
        "bearer" + " " * 1_000_000,
        "1 " * 500_000,
        "eyJaaaaaaaa." * 80_000,
        "aa=" * 100_000,
    ],
    ids=lambda body: body[:12],
)
def test_previews_of_what_takes_long(body: str, limit: int) -> None:
    """No body takes long to preview, neither as text nor as a text within JSON."""
    for data in (body.encode(), json.dumps({"x": body}).encode()):
        # Not by the clock on the wall, which goes on while others have the processor.
        began = time.process_time()
        body_preview.preview(data, limit)
        assert time.process_time() - began < 2


def test_numbers() -> None:
    """Sizes in powers of 1024, and nouns that agree with their number."""
    assert [size_text(size) for size in (0, 1023, 1536, 150 * 1024, 1 << 20, 3 << 40)] == [
        "0 B", "1,023 B", "1.5 KiB", "150 KiB", "1.0 MiB", "3,072 GiB"
    ]  # fmt: skip
    assert plural(1, "record") == "1 record"
    assert plural(1200, "entry", "entries") == "1,200 entries"


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container a user may have a number only; the trail has that, then."""

    def nameless() -> str:
        raise OSError("No username set in the environment")

    monkeypatch.delenv("SUDO_USER", raising=False)
    monkeypatch.setattr("getpass.getuser", nameless)
    assert prompt.current_user().startswith(f"{os.getuid()}@")


def test_half_a_secret_is_hidden_too() -> None:
    """Secrets are hidden before the preview is cut, so that no cut can make one unrecognisable."""
    body = b"card number 4242 4242 4242 4242"
    assert "4242" not in "".join(body_preview.preview(body, 20).lines)


def test_half_a_secret_stays_hidden_in_a_long_text() -> None:
    """Only the beginning of a long text is looked at; wherever that ends, no part of a secret is shown."""
    for secret in (
        b"password=hunter2-hunter2-hunter2 ",
        b"eyJ" + b"hunter2-" * 9 + b".e.e ",
        b"token='hunter2' ",
    ):
        for cut in range(0, len(secret), 3):
            # All but nothing is left of what is hidden, so all that was looked at would be shown.
            body = b"x" * cut + b" token=" + b"x" * 17_000 + b" " + secret * 3000
            line = "".join(body_preview.preview(body, 2000).lines)
            assert line.startswith("x" * cut + " token=<redacted>")
            assert "hunter" not in line
    token = b"eyJhbGciOiJIUzI1NiJ9" + b"a" * 8000 + b".eyJzdWIiOiIxIn0.c2lnbmF0dXJl"
    for limit in (0, 99, 100, 105, 111, 5000):
        seen = body_preview.preview(b"x " * 50 + token + b" x" * 50_000, limit)
        assert "eyJ" not in "".join(seen.lines)
        assert seen.cut
    assert body_preview.preview(b"x" * 1_000_000, 2000) == body_preview.Preview("text", ("x" * 2000,), True)


def test_a_digest_of_credentials_is_shortened() -> None:
    """Eight digits tell callers apart, in lists and in `--json`; the rest is for the store alone."""
    parts = {"credentials": "0123456789abcdef0123456789abcdef", "x-api-key": "secret", "tenant": "7"}
    assert redaction.redacted_scope(parts) == {
        "credentials": "01234567",
        "x-api-key": redaction.HIDDEN,
        "tenant": "7",
    }
