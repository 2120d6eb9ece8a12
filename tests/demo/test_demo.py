"""The demo as users see it: as a process, without a terminal and on a real one."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo.conftest import Start
from tests.demo.demo_process import RUN, Demo, cents, row

TIME_LIMIT = 20.0


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A run that has ended.  A busy machine makes it slower, never faster: so it is run up to three times."""
    seconds: list[float] = []
    for _ in range(3):
        demo = Demo(RUN, tmp_path_factory.mktemp("demo"))
        try:
            assert demo.end() == 0, demo.text
            demo.assert_cleaned_up()
            if demo.seconds < TIME_LIMIT:
                yield demo
                return
        finally:
            demo.close()
        seconds.append(demo.seconds)
    raise AssertionError(f"three runs took {seconds} seconds, and none less than {TIME_LIMIT}")


def test_it_shows_the_difference_that_keys_make(demo: Demo) -> None:
    """Exit 0 within 20 seconds; too much money without keys, and the right amount with them."""
    expected = [cents(cell) for cell in row(demo.text, "Money that should be taken")]
    taken = [cents(cell) for cell in row(demo.text, "Money that was taken")]
    assert expected[0] == expected[1] == expected[2] == taken[1] == taken[2]
    assert taken[0] > expected[0]
    difference = row(demo.text, "Difference")
    assert cents(difference[0]) == taken[0] - expected[0]
    assert difference[1:] == ["€0.00", "€0.00"]
    wrong = row(demo.text, "Wrong charges or receipts")
    assert int(wrong[0]) > 0
    assert wrong[1:] == ["0", "0"]


def test_its_numbers_add_up(demo: Demo) -> None:
    """Every kind of duplicate occurred, and the parts add up."""
    assert row(demo.text, "Payments intended") == ["60"] * 3
    sent = [int(cell) for cell in row(demo.text, "Requests sent")]
    duplicates = [int(cell) for cell in row(demo.text, "Duplicates the server received")]
    assert all(0 < some < every for some, every in zip(duplicates, sent, strict=True))
    replays = row(demo.text, "replayed the first response")
    conflicts = row(demo.text, "refused: in flight (409)")
    assert replays[0] == conflicts[0] == "-"
    assert int(replays[1]) + int(conflicts[1]) == duplicates[1]
    assert int(conflicts[1]) > 0


def test_unknown_outcomes_of_both_kinds_are_settled(demo: Demo) -> None:
    """The server was killed during a payment that was taken and one that was not; retries were refused."""
    unknown = row(demo.text, "Unknown outcomes")
    resolved = row(demo.text, "taken: resolved as completed")
    released = row(demo.text, "not taken: released, retried")
    assert [unknown[1], resolved[1], released[1]] == ["0", "0", "0"]
    assert int(resolved[2]) >= 1
    assert int(released[2]) >= 1
    assert int(resolved[2]) + int(released[2]) == int(unknown[2])
    assert int(row(demo.text, "refused until settled (409)")[2]) >= 2


def test_without_a_terminal_it_writes_plain_lines(demo: Demo) -> None:
    """No colours, no bar, and nothing but a path is wider than 80 columns."""
    assert "\x1b" not in demo.output
    assert "━" not in demo.output
    assert "--seed 7" in demo.output
    lines = [line for line in demo.output.splitlines() if "retrysafe ls" not in line]
    assert [line for line in lines if len(line) > 80] == []


def test_on_a_terminal_it_shows_a_bar(start: Start) -> None:
    """A bar moves while customers pay, and is gone in the end; the table is the same."""
    demo = start(RUN, columns=80)
    assert demo.end() == 0, demo.text
    assert re.search(r"━+ *\d+/60 payments", demo.text)
    assert "\x1b[" in demo.output
    assert row(demo.text, "Difference")[1:] == ["€0.00", "€0.00"]
    demo.assert_cleaned_up()


def test_a_seed_is_drawn_and_printed(start: Start) -> None:
    """Without a seed each run is another one, and can be repeated."""
    code = "import sys; from retrysafe.demo import run; sys.exit(run())"
    demos = [start(code), start(code), start(code)]
    seeds: set[str] = set()
    for demo in demos:
        text = demo.read_until(lambda text: re.search(r"--seed \d+\n", text))
        seeds.update(re.findall(r"--seed (\d+)", text))
    assert len(seeds) > 1


def test_its_picture_needs_nothing_else(start: Start, tmp_path: Path) -> None:
    """The picture for the README fetches nothing, and shows no path of the machine that made it."""
    picture = tmp_path / "demo.svg"
    demo = start(
        "import sys; from pathlib import Path; from tools.demo_screenshot import main; "
        f"sys.exit(main(Path({str(picture)!r}), 7))"
    )
    assert demo.end() == 0, demo.text
    drawing = picture.read_text(encoding="utf-8")
    assert "@font-face" not in drawing
    assert "url(http" not in drawing
    assert "Difference" in drawing
    assert str(Path(sys.executable).parent) not in drawing
