"""The demo as people see it: as a process, without a terminal and on a real one."""

import re

from tests.demo.conftest import Start
from tests.demo.running import RUN, Demo, cents, row

LIMIT = 20.0


def fast_enough(start: Start) -> Demo:
    """A run within the limit.  A busy machine makes one slower, never faster: so it has three chances."""
    seconds: list[float] = []
    for _ in range(3):
        demo = start(RUN)
        assert demo.end() == 0, demo.text
        demo.assert_nothing_left()
        if demo.seconds < LIMIT:
            return demo
        seconds.append(demo.seconds)
    raise AssertionError(f"three runs took {seconds} seconds, and none less than {LIMIT}")


def test_it_shows_the_difference_that_keys_make(start: Start) -> None:
    """Exit 0 within 20 seconds; too much money without keys, and the right amount with them."""
    demo = fast_enough(start)
    should, taken = (
        [cents(cell) for cell in row(demo.text, f"Money that {what}")]
        for what in ("should be taken", "was taken")
    )
    assert should[0] == should[1] == should[2] == taken[1] == taken[2]
    assert taken[0] > should[0]
    difference = row(demo.text, "Difference")
    assert cents(difference[0]) == taken[0] - should[0]
    assert difference[1:] == ["€0.00", "€0.00"]
    wrong = row(demo.text, "Customers charged or told wrong")
    assert int(wrong[0]) > 0
    assert wrong[1:] == ["0", "0"]


def test_its_numbers_fit_together(start: Start) -> None:
    """Everything happened that is claimed, and the parts add up."""
    demo = start(RUN)
    assert demo.end() == 0, demo.text
    assert row(demo.text, "Payments intended") == ["60"] * 3
    sent = [int(cell) for cell in row(demo.text, "Requests sent")]
    duplicates = [int(cell) for cell in row(demo.text, "Duplicates the server received")]
    assert all(0 < some < all_ for some, all_ in zip(duplicates, sent, strict=True))
    replays = row(demo.text, "answered as before (replay)")
    conflicts = row(demo.text, "still running (409 conflict)")
    assert replays[0] == conflicts[0] == "-"
    assert int(replays[1]) + int(conflicts[1]) == duplicates[1]
    assert int(conflicts[1]) > 0
    unknown = row(demo.text, "Unknown outcomes")
    resolved, released = (
        row(demo.text, "was taken: resolved as done"),
        row(demo.text, "was not: released, and retried"),
    )
    assert [unknown[1], resolved[1], released[1]] == ["0", "0", "0"]
    assert int(resolved[2]) >= 1
    assert int(released[2]) >= 1
    assert int(resolved[2]) + int(released[2]) == int(unknown[2])
    assert int(row(demo.text, "told so meanwhile (409)")[2]) >= 2


def test_without_a_terminal_it_writes_plain_lines(start: Start) -> None:
    """No colours, no bar, nothing wider than 80 columns."""
    demo = start(RUN)
    assert demo.end() == 0
    assert "\x1b" not in demo.output
    assert "━" not in demo.output
    assert "--seed 7" in demo.output
    assert [line for line in demo.output.splitlines() if len(line) > 80 and ".venv" not in line] == []


def test_on_a_terminal_it_shows_a_bar(start: Start) -> None:
    """A bar moves while customers pay, and is gone in the end; the table is the same."""
    demo = start(RUN, columns=80)
    assert demo.end() == 0, demo.text
    assert re.search(r"━+ *\d+/60 payments", demo.text)
    assert "\x1b[" in demo.output
    assert row(demo.text, "Difference")[1:] == ["€0.00", "€0.00"]
    demo.assert_nothing_left()


def test_a_seed_is_drawn_and_printed(start: Start) -> None:
    """Without a seed each run is another one, and can be repeated."""
    code = "import sys; from retrysafe.demo import run; sys.exit(run())"
    demos = [start(code), start(code), start(code)]
    seeds: set[str] = set()
    for demo in demos:
        text = demo.read_until(lambda text: re.search(r"--seed \d+\n", text))
        seeds.update(re.findall(r"--seed (\d+)", text))
    assert len(seeds) > 1
