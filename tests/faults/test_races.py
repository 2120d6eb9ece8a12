"""Purges, claims, replays and take-overs of the same few rows at the same time, from threads and processes.

What is checked is what the outside can see (F26): at no time do two handlers run for one key, nobody is told
anything that did not happen, and what was told once is told again for as long as it is kept.
"""

import json
import os
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from retrysafe import stores
from retrysafe._core.model import Claim, Found, Reserved
from retrysafe.stores.contract import Store
from retrysafe.testing.adapters.client import until
from retrysafe.testing.stores.harness import a_claim, an_outcome
from tests.any_store import SHARED, STORES

RACER = Path(__file__).with_name("racer.py")
LONG = "RETRYSAFE_LONG" in os.environ
SECONDS = 20.0 if LONG else 1.5
RETENTION = 0.08

Entry = dict[str, Any]


def race(folder: Path, store: str, *arguments: str) -> list[Entry]:
    """Let them race; everything that was seen."""
    command = [
        sys.executable,
        str(RACER),
        str(folder),
        f"--store={store}",
        f"--seconds={SECONDS}",
        f"--retention={RETENTION}",
    ]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=SECONDS + 60)
    assert done.returncode == 0, done.stderr
    lines = [line for log in folder.glob("*.log") for line in log.read_text().splitlines()]
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("address", SHARED, indirect=True)
@pytest.mark.parametrize("arguments", [[], ["--failures"]], ids=["answers", "failures"])
def test_purge_against_everybody(tmp_path: Path, address: str, arguments: list[str]) -> None:
    """F26, F9: forked processes purge while they claim, replay and take over: replay or run, never both.

    The children are forked from a process whose guard was in use, and parent and children go on using it.
    """
    seen = race(tmp_path, address, "--processes=3", *arguments)
    runs = {entry["run"]: entry for entry in seen if "run" in entry}
    told = [entry for entry in seen if "told" in entry]
    assert sum(entry["purged"] for entry in seen if "purged" in entry) > 0, "nothing was purged"
    assert any(entry["replayed"] for entry in told), "nothing was replayed"
    assert {entry["refused"] for entry in seen if "refused" in entry} <= {"in-flight"}
    _assert_one_at_a_time(list(runs.values()))
    _assert_true(runs, told)
    _assert_agreement(runs, told)
    for name in ("used-before-the-fork", "used-after-the-fork"):
        assert [entry["key"] for entry in told].count(name) == 1


def _assert_one_at_a_time(runs: list[Entry]) -> None:
    """I2: while a handler runs for a key, no other one does, in any process."""
    by_key: dict[str, list[Entry]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: float(run["begun"])):
        by_key[run["key"]].append(run)
    for key, found in by_key.items():
        for one, other in pairwise(found):
            assert one["ended"] <= other["begun"], f"two at once for {key}: {one} and {other}"


def _assert_true(runs: dict[str, Entry], told: list[Entry]) -> None:
    """Every answer is that of a run for this very key; and exactly one client got it unmarked."""
    fresh: set[str] = set()
    for entry in told:
        run = runs[entry["told"]]
        assert run["key"] == entry["key"]
        assert not run["failed"]
        if not entry["replayed"]:
            assert entry["told"] not in fresh, "two clients were told that they were the first"
            fresh.add(entry["told"])


def _assert_agreement(runs: dict[str, Entry], told: list[Entry]) -> None:
    """I6: an answer is not given any more to those who ask after somebody has heard a later one."""
    for key in {entry["key"] for entry in told}:
        ours = [(entry, float(runs[entry["told"]]["begun"])) for entry in told if entry["key"] == key]
        heard = sorted(ours, key=lambda pair: float(pair[0]["heard"]), reverse=True)
        latest = 0.0
        for entry, begun in sorted(ours, key=lambda pair: float(pair[0]["asked"])):
            while heard and heard[-1][0]["heard"] < entry["asked"]:
                latest = max(latest, heard.pop()[1])
            assert begun >= latest, f"an older answer after a newer one: {entry}"


# --- threads, right at the store


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    with closing(stores.open(address, deadline=20.0)) as store:
        yield store


on_every_store = pytest.mark.parametrize("address", STORES, indirect=True)


def _at_once(count: int, work: Callable[[int], object]) -> list[object]:
    """Do it in so many threads that begin together."""
    gate = threading.Barrier(count)

    def begin(number: int) -> object:
        gate.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def _claim(key: str, retention: float = 3600.0, lease: float = 30.0) -> Claim:
    return a_claim(key)._replace(retention=retention, lease=lease)


def _is_gone(store: Store, claim: Claim) -> bool:
    return store.look(claim.id) is None


@on_every_store
def test_an_expired_record_is_claimed_once(store: Store) -> None:
    """F26, I10: of many who find an expired record, while others purge it, one gets it; and the purge takes
    nothing of the new record."""
    for number in range(40 if LONG else 15):
        key = f"expired-{number}"
        dead = _claim(key, retention=0.01, lease=0.01)
        assert isinstance(store.reserve(dead), Reserved)
        if number % 2:
            assert store.finish(dead, an_outcome())
        until(partial(_is_gone, store, dead))
        claims = [_claim(key) for _ in range(6)]

        def work(index: int, claims: list[Claim] = claims) -> object:
            return store.purge(10) if index % 2 else store.reserve(claims[index // 2])

        answers = [answer for answer in _at_once(12, work) if isinstance(answer, Reserved | Found)]
        assert answers.count(Reserved(1)) == 1
        found = store.look(dead.id)
        assert found is not None, "the purge took the new record"
        assert found.record.state == "in_progress"
        losers = [answer for answer in answers if isinstance(answer, Found)]
        assert {loser.record.token for loser in losers} == {found.record.token}


@on_every_store
def test_a_take_over_happens_once(store: Store) -> None:
    """F26: of many successors of one abandoned attempt, while others purge, one wins; the rest see it."""
    for number in range(40 if LONG else 15):
        key = f"abandoned-{number}"
        dead = _claim(key, lease=1e-6)
        assert isinstance(store.reserve(dead), Reserved)
        claims = [_claim(key) for _ in range(6)]

        def work(index: int, claims: list[Claim] = claims, dead: Claim = dead) -> object:
            return (
                store.purge(10)
                if index % 2
                else store.take_over(claims[index // 2], dead.token, "in_progress")
            )

        answers = _at_once(12, work)
        assert answers.count(Reserved(2)) == 1
        found = store.look(dead.id)
        assert found is not None
        for answer in answers:
            if isinstance(answer, Found):
                assert answer.record.token == found.record.token
        assert store.finish(dead, an_outcome()) is False
        [winner] = [claim for claim in claims if claim.token == found.record.token]
        assert store.finish(winner, an_outcome())


@on_every_store
def test_a_release_against_a_claim(store: Store) -> None:
    """A key that is released while others bid for it goes to one of them or stays free: nobody is lost."""
    for number in range(40 if LONG else 15):
        key = f"released-{number}"
        owner = _claim(key)
        assert isinstance(store.reserve(owner), Reserved)
        claims = [_claim(key) for _ in range(5)]

        def work(index: int, claims: list[Claim] = claims, owner: Claim = owner) -> object:
            if index < 5:
                return store.reserve(claims[index])
            store.release(owner)
            return None

        answers = _at_once(6, work)
        winners = [answer for answer in answers if isinstance(answer, Reserved)]
        assert len(winners) <= 1
        found = store.look(owner.id)
        assert (found is not None) == bool(winners)
