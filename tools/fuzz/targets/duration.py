"""Durations on the command line: seconds that make sense, or an error that says what to write."""

import re

import typer

from retrysafe.cli.format import duration, long_duration, short_duration
from tools.fuzz.targets import Broken

_WELL_FORMED = re.compile(r"([0-9]+(\.[0-9]+)?[smhdw])+")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def check(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    plain = text.strip().lower().replace(" ", "")
    try:
        seconds = duration(text)
    except typer.BadParameter as error:
        if _WELL_FORMED.fullmatch(plain) and "century" not in str(error):
            raise Broken(f"{text!r} is a duration, and was refused: {error}") from error
        return
    if not _WELL_FORMED.fullmatch(plain) or not 0 <= seconds <= 100 * 366 * 86400:
        raise Broken(f"{text!r} was taken for {seconds} s")
    expected = 0.0
    number = ""
    for character in plain:
        if character in _SECONDS:
            expected += float(number) * _SECONDS[character]
            number = ""
        else:
            number += character
    if abs(seconds - expected) > 1e-6 * expected:
        raise Broken(f"{text!r} was taken for {seconds} s, and is {expected} s")
    if not isinstance(short_duration(seconds), str) or not isinstance(long_duration(seconds), str):
        raise Broken(f"{seconds} s cannot be formatted")
