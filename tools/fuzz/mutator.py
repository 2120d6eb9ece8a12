"""The engine for where atheris is missing: seeds, changed at random, blind to the code that they run."""

from collections.abc import Sequence
from random import Random

from tools.fuzz.targets import Check

_BYTES = b'\x00\t\r\n "\\%,:;=-+.09aAzZ[]{}|!\x7f\x80\xfe\xff'


class Crash(Exception):
    """A target raised: with which input, and after how many others."""

    def __init__(self, data: bytes, executions: int) -> None:
        super().__init__(f"input {data.hex()} after {executions} executions")
        self.data = data
        self.executions = executions


def fuzz(check: Check, seeds: Sequence[bytes], *, executions: int, seed: int, longest: int) -> None:
    """Call it so often.  `Crash`, caused by what it raised, if it raised anything."""
    random = Random(seed)
    data = b""
    done = 0
    try:
        for data in seeds[:executions]:
            check(data)
            done += 1
        while done < executions:
            data = mutated(random, random.choice(seeds), seeds)[:longest]
            check(data)
            done += 1
    except Exception as error:
        raise Crash(data, done) from error


def mutated(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """With up to four changes."""
    for _ in range(1 + int(random.random() * 4)):
        at = int(random.random() * (len(data) + 1))
        match int(random.random() * 6):
            case 0:
                data = data[:at] + bytes([_BYTES[int(random.random() * len(_BYTES))]]) + data[at:]
            case 1:
                data = data[:at] + bytes([int(random.random() * 256)]) + data[at + 1 :]
            case 2:
                data = data[:at] + data[at + 1 + int(random.random() * 4) :]
            case 3:
                end = at + 1 + int(random.random() * 6)
                data = data[:end] + data[at:end] + data[end:]
            case 4:
                data = data[:at] + random.choice(seeds)[at:]
            case _:
                data = data[:at] + bytes([_BYTES[int(random.random() * len(_BYTES))]]) + data[at + 1 :]
    return data
