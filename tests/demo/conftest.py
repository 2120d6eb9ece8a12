from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.demo.demo_process import Demo

Start = Callable[..., Demo]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start demos, each in a folder of its own; they end with the test, however it goes."""
    started: list[Demo] = []

    def start(code: str, *, columns: int | None = None) -> Demo:
        started.append(Demo(code, tmp_path / f"demo{len(started)}", columns=columns))
        return started[-1]

    yield start
    for demo in started:
        demo.close()
