"""Hides what looks like a secret before a stored response is shown.

By name first: whatever is called a password, a token or a card is hidden, however deep it sits.  Then by
shape: card numbers, JSON web tokens and bearer credentials, whatever they are called.  It hides too
much rather than too little; `--body` shows everything.

Bodies have up to a megabyte and may come from an attacker, so no pattern here may look at the same
text again and again: each begins where a run of its characters begins, and gives nothing back (`++`).
"""

import itertools
import re
from collections.abc import Mapping
from typing import cast

from retrysafe._core import keys

HIDDEN = "<redacted>"

# Parts of a name, in lower case and in the singular: `cardNumber` and `X-Api-Key` are ("card", "number") and
# ("x", "api", "key").
_SECRET_WORDS = frozenset(
    "password passwd passwort passphrase passcode pwd secret token authorization authentication auth bearer "
    "cookie session credential jwt apikey card pan cvc cvv cvn csc pin otp iban ssn signature".split()
)
_SECRET_PAIRS = frozenset(
    {
        (kind, "key")
        for kind in "api private access secret encryption signing shared service client idempotency".split()
    }
    | {("account", "number"), ("routing", "number"), ("security", "code"), ("sort", "code")}
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_CARD = re.compile(r"(?<![\d.])(?:\d[ -]?){12,18}\d(?![\d.])")
# A run of what a JSON web token consists of, and where in it one begins.
_RUN = re.compile(r"[\w.-]{13,}+")
_JWT = re.compile(r"\beyJ[\w-]{8}")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")
# `name=value`, `name: value`, `"name": "value"` and `<name>value</name>` in text that is not JSON.
_NAMED = re.compile(r"""(?<![\w.-])(?P<name>[\w.-]{2,}+)["']?\s*+[=:]\s*+""")
_VALUE = re.compile(r""""[^"\n]*+"?|'[^'\n]*+'?|[^\s,;&<>"']++""")
_TAGGED = re.compile(r"<(?P<name>[\w.:-]{2,64}+)(?P<more>[^<>]*+)>[^<>]++")


def is_secret(name: str) -> bool:
    """Whether a value of this name has to be hidden."""
    words = [word.lower() for word in _WORD.findall(name)]
    words = [word[:-1] if word.endswith("s") and not word.endswith("ss") else word for word in words]
    if any(word in _SECRET_WORDS for word in words):
        return True
    if any(pair in _SECRET_PAIRS for pair in itertools.pairwise(words)):
        return True
    # Run together, as in `accesstoken`: only words that no harmless name contains.
    joined = "".join(words)
    if joined.endswith("token"):
        return True
    return any(word in joined for word in ("password", "passwd", "secret", "apikey", "cardnumber"))


def redacted(value: object) -> object:
    """A JSON value with its secrets hidden, names unchanged."""
    if isinstance(value, dict):
        pairs = cast("dict[str, object]", value).items()
        return {name: HIDDEN if is_secret(name) and inner else redacted(inner) for name, inner in pairs}
    if isinstance(value, list):
        return [redacted(inner) for inner in cast("list[object]", value)]
    if isinstance(value, str):
        return _by_shape(value)
    if isinstance(value, int) and _CARD.fullmatch(str(value)) and _is_card(str(value)):
        return HIDDEN
    return value


def redacted_text(text: str) -> str:
    """Text that is not JSON, with the secrets hidden that can be recognised."""
    text = _without_assigned(text)
    text = _TAGGED.sub(_hide_tagged, text)
    return _by_shape(text)


def redacted_header(name: str, value: str) -> str:
    return HIDDEN if is_secret(name) else redacted_text(value)


def redacted_scope(parts: Mapping[str, str]) -> dict[str, str]:
    """Scope parts: a service may have made a header with credentials one."""
    # A digest of credentials (`scopes.credentials`) is shortened instead: it distinguishes callers.
    return {
        name: HIDDEN if is_secret(name) and name != keys.CREDENTIALS else value
        for name, value in keys.mask_scope(tuple(parts.items()))
    }


def _by_shape(text: str) -> str:
    text = _BEARER.sub(lambda found: f"{found[1]} {HIDDEN}", text)
    text = _RUN.sub(_hide_jwt, text)
    return _CARD.sub(lambda found: HIDDEN if _is_card(found[0]) else found[0], text)


def _without_assigned(text: str) -> str:
    shown: list[str] = []
    start = at = 0
    while named := _NAMED.search(text, at):
        at = named.end()
        # Only a secret's value is passed over: any other may be an address with `?token=…` in it.
        if is_secret(named["name"]) and (value := _VALUE.match(text, at)):
            shown += (text[start:at], HIDDEN)
            start = at = value.end()
    return "".join((*shown, text[start:]))


def _hide_jwt(found: re.Match[str]) -> str:
    run = found[0]
    token = _JWT.search(run)
    if token is None or run.find(".", token.end(), -1) < 0:
        return run
    return run[: token.start()] + HIDDEN


def _hide_tagged(found: re.Match[str]) -> str:
    return f"<{found['name']}{found['more']}>{HIDDEN}" if is_secret(found["name"]) else found[0]


def _is_card(text: str) -> bool:
    """Luhn's check, which one in ten random numbers passes and every card number."""
    digits = [int(char) for char in text if char.isdigit()]
    doubled = [digit * 2 - 9 if digit > 4 else digit * 2 for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
