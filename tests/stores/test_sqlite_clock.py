"""The host's clock: anchored once per boot, never going back."""

import time
from pathlib import Path

import pytest

from retrysafe._core.model import Found
from retrysafe.stores.sql.sqlite import SQLiteStore, clock
from retrysafe.stores.sql.sqlite.clock import HostClock
from retrysafe.testing.stores import a_claim

NEVER = 4_000_000_000.0


@pytest.fixture(params=["a boot", None], ids=["anchored", "unanchored"])
def boot(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """A system that tells its boots apart, and one that does not."""
    if request.param is None or clock.boot_id() is None:
        monkeypatch.setattr(clock, "boot_id", lambda: None)
        return None
    monkeypatch.setattr(clock, "boot_id", lambda: "a boot")
    return "a boot"


def now(path: Path) -> float:
    """What time it is in this store, for a process that comes new to it."""
    store = SQLiteStore(path)
    found = store.reserve(a_claim("clock"))
    if not isinstance(found, Found):
        found = store.reserve(a_claim("clock"))
    store.close()
    assert isinstance(found, Found)
    return found.now


def test_it_is_about_now(tmp_path: Path, boot: str | None) -> None:
    """On a host whose clock is right, the store's time is the time."""
    assert abs(now(tmp_path / "keys.db") - time.time()) < 5.0


def test_a_clock_that_is_set_back_does_not_turn_time_back(
    tmp_path: Path, boot: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes later, with a wall clock an hour behind, goes on from where the store was."""
    before = now(tmp_path / "keys.db")
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 3600.0)
    assert now(tmp_path / "keys.db") >= before - clock.MARK_EVERY


def test_a_clock_that_is_set_forward_does_not_move_an_anchored_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within one boot nobody's wall clock counts but that of the first."""
    if clock.boot_id() is None:
        pytest.skip("this system does not tell its boots apart")
    before = now(tmp_path / "keys.db")
    monkeypatch.setattr(time, "time", lambda: NEVER)
    assert abs(now(tmp_path / "keys.db") - before) < 30.0


def test_a_new_boot_anchors_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the wall clock of its first process, and never before the high-water mark."""
    if clock.boot_id() is None:
        pytest.skip("this system does not tell its boots apart")
    before = now(tmp_path / "keys.db")
    real = time.time
    monkeypatch.setattr(clock, "boot_id", lambda: "the next boot")
    monkeypatch.setattr(time, "time", lambda: real() - 86400.0)
    assert before - clock.MARK_EVERY <= now(tmp_path / "keys.db") < before + 30.0
    monkeypatch.setattr(clock, "boot_id", lambda: "the one after it")
    monkeypatch.setattr(time, "time", lambda: real() + 86400.0)
    assert now(tmp_path / "keys.db") > before + 86000.0


def test_an_unanchored_clock_stands_still_rather_than_going_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a clock that nobody can set, the mark is all there is, and it holds."""
    monkeypatch.setattr(clock, "boot_id", lambda: None)
    hostclock = HostClock()
    assert hostclock.adopt({"high_water": NEVER})
    assert hostclock() == hostclock() == NEVER
    hostclock.raise_to("nonsense")
    hostclock.raise_to(NEVER + 5.0)
    assert hostclock() == NEVER + 5.0
