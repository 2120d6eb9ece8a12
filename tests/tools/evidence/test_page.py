"""The page: every number from a report, nothing claimed without one, and the worst at the top."""

import ast
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from retrysafe.testing.simulate import SETTINGS
from retrysafe.testing.simulate.promises import PROMISES
from tests.tools.evidence.conftest import ROOT
from tests.tools.evidence.reports import AT, everything, instead, without
from tools.evidence import markdown, page
from tools.evidence.errors import EvidenceError
from tools.evidence.sections import total
from tools.planted.bug import REASONED

WHOLE = page.write(everything(), 1.0)


def section(text: str, heading: str) -> str:
    """From this heading to the next, prose in one line."""
    found = re.split(r"^#+ ", text.split(f" {heading}\n", 1)[1], maxsplit=1, flags=re.M)[0]
    return flat(found)


def flat(text: str) -> str:
    return re.sub(r"(?<=[^\n|])\n(?=[^\n|])", " ", text)


def test_is_the_same_again() -> None:
    """The same reports, the same page."""
    assert page.write(everything(), 1.0) == WHOLE


def test_headline() -> None:
    """What holds, of which size, made when, from what, on what, in what time."""
    jobs = sum(len(part.jobs) for part in everything().values())
    assert WHOLE.startswith(
        f"# Evidence\n\n**No violation.** All {jobs} jobs were run, of the standard size."
    )
    top = section(WHOLE, "How this page was made")
    assert (
        f"All {jobs} reports were made on 2026-11-16, from revision `0123456789ab`, with CPython 3.11.7"
        in top
    )
    assert "SQLite 3.40.1, PostgreSQL 18.6, MariaDB 10.11.19, Valkey 9.1.2, Linux on x86_64, 2 cores" in top
    assert "several revisions" not in top


def test_the_result_comes_first_and_hashes_last() -> None:
    """What was run in each part and what came of it, before any prose; revisions after all of it."""
    headline, results, _ = WHOLE.split("\n\n", 4)[1:4]
    assert headline.startswith("**No violation.**")
    assert results.splitlines()[0] == "| part | what was run | violations |"
    assert "| simulate | 5,000,000 random schedules | 0 |" in results
    assert "| planted | 3 planted bugs caught | 0 |" in results
    assert (
        "| crash-postgresql | 2,000 kills, 500 freezes, 60 server kills, 500 cuts, 20 outages | 0 |"
        in results
    )
    assert "| linearize | 1,000,000 generated histories | 0 |" in results
    assert "| fuzz | 30,000,000 executions | 0 |" in results
    broken = page.write(instead(everything(), "linearize", violations=["one", "two"]), 1.0)
    assert "| linearize | 1,000,000 generated histories | 2 |" in broken
    before, _, last = WHOLE.rpartition("\n## ")
    assert last.startswith("How this page was made\n")
    assert "0123456789ab" in last
    assert "0123456789ab" not in before


def test_coverage() -> None:
    """What the simulation executes of the product, and what it only models, is measured and shown; and what
    catches planted bugs in PostgreSQL's statements is said."""
    text = section(WHOLE, "What of the product it executes")
    assert "the lease keeper and the HTTP exchange are modelled" in text
    assert "executed in 2,000 schedules" in text
    assert "| the flow | 92% | 184 | 200 |" in text
    assert "| drivers | 0% | 0 | 150 |" in text
    assert "those of other stores by a test on a real server" in section(WHOLE, "Planted bugs")


def test_simulation() -> None:
    """Schedules by store and by setting, seeds, faults, verdicts, and the rule of three."""
    text = section(WHOLE, "Simulation")
    assert "5,000,000 schedules" in text
    assert "50,000 on the real SQLite store" in text
    assert "seeds 0 to 4,999,999" in text
    assert "| hold | 2,500,000 | 50,000,000 | replayed: 15,000,000; completed: 5,000,000 |" in text
    assert "| lose reply | the store performs a call, and the reply is lost | 10,000,000 |" in text
    assert "No violation in 5,000,000: with 95% confidence, fewer than one in 1,666,666 schedules" in text


def test_doors() -> None:
    """Each door has numbers of its own, in its own words."""
    simulated = section(WHOLE, "Operations")
    assert "1,000,000 schedules" in simulated
    assert "| lose reply | the store performs a call, and the reply is lost | 2,000,000 |" in simulated
    told = section(WHOLE, "Callbacks")
    assert "| setting | schedules | steps | what senders were told | how turns of workers ended |" in told
    assert "| inbox, tx | 1,000,000 | 18,000,000 | replayed: 1,000,000 | completed: 2,000,000 |" in told
    assert "| deliver | a delivery arrives | 3,000,000 |" in told
    crashed = section(WHOLE, "Operations on PostgreSQL")
    assert "1,000 kills, 250 freezes, 30 server kills, 250 cuts, 10 outages, in 30 rounds" in crashed
    assert "| calls | 5,700 |" in crashed
    assert "| deliveries | 5,700 |" in section(WHOLE, "Callbacks on SQLite")
    assert "| events that were acknowledged | 5,100 |" in section(WHOLE, "Callbacks on PostgreSQL")


def test_search() -> None:
    """The bounds, and how much there was within them."""
    text = section(WHOLE, "Exhaustive search")
    number = 222 * len(SETTINGS)
    found = f"{number:,},000 schedules, {number:,} different states."
    assert f"At most 3 attempts, 1 crash: {found}" in text
    assert "At most 3 attempts, 1 crash, in batches: 666,000 schedules, 666 different states." in text
    assert f"At most 3 attempts, 1 crash, 1 cancellation: {found}" in text
    assert text.count("| hold | 3 | 222 | 222,000 |") == 3
    assert "Within these bounds there is no schedule that breaks a promise." in text


def test_planted() -> None:
    """Each bug, where it was seen, and what caught it when."""
    text = section(WHOLE, "Planted bugs")
    assert (
        "3 planted bugs, and each was caught: 2 by the simulation, half of them within 1 schedule, the last "
        "within 12; 1 by tests."
    ) in text
    assert "Mistakes that were really made: 1 of them" in text
    assert "Mistakes that suggest themselves: 2." in text
    assert f"| a batch is lost | {REASONED} | `test_a_batch` |  |" in text
    assert "| complete is unconditional | a queue \\| of 2019 | I3 | 12 |" in text


def test_crashes() -> None:
    """What was done to the processes, and what came of it; of recoveries the slowest."""
    text = section(WHOLE, "PostgreSQL")
    assert "| kills | 2,000 |" in text
    assert "| freezes | 500 |" in text
    assert "| server kills | 60 |" in text
    assert "| outages | 20 |" in text
    assert "| slowest recovery, once faults had stopped | 1.2 s |" in text
    assert "one more would have been found | 3,000 |" in text
    assert "| cut before reserve | 140 |" in text
    assert (
        "2,000 kills, 500 freezes, 60 server kills, 500 cuts, 20 outages, in 60 rounds; seeds 0 to 3." in text
    )
    assert "fewer than one in 1,026 faults" in text
    assert "server kills" not in section(WHOLE, "SQLite")


def test_places() -> None:
    """By mode; those that were aimed at and never hit, in all jobs together, are named.  If there are none,
    that is said."""
    text = section(WHOLE, "SQLite")
    assert "| place | tx, killed | tx, frozen | hold, killed | hold, frozen |" in text
    assert "| before COMMIT | 2,000 | 400 |  |  |" in text
    assert "| after Finish raise |  |  | 28 | 0 |" in text
    assert "**Never hit: frozen after Finish raise (hold).**" in text
    assert "workers were killed 0 and frozen 100 times" in text
    parts = everything()
    first, *others = parts["crash-sqlite"].stored
    counts = dict(first.report.counts)
    counts["named places"] = {**counts["named places"], "hold: stop after Finish raise": 1}
    once = first._replace(report=first.report._replace(counts=counts))
    parts["crash-sqlite"] = parts["crash-sqlite"]._replace(found=[once, *others])
    text = section(page.write(parts, 1.0), "SQLite")
    assert "No named place was missed" in text
    assert "Never hit" not in text
    counts["named places"] = {f"tx: kill before {number}": 0 for number in range(21)}
    few = first._replace(report=first.report._replace(counts=counts))
    parts["crash-sqlite"] = page.Part(parts["crash-sqlite"].jobs[:1], [few])
    text = section(page.write(parts, 1.0), "SQLite")
    assert "**21 were never hit**: those with a 0 in this table." in text


def test_histories() -> None:
    """Those that came from runs are not those that were made up."""
    text = section(WHOLE, "Histories")
    assert "| simulate | 5,000,000 |" in text
    assert "| crash-sqlite | 10,300 |" in text
    assert "1,000,000 generated histories of 4,000,000 requests, up to 29 in one" in text
    assert "accepted 500,000 and rejected 500,000" in text


def test_fuzzing() -> None:
    """Each target with its share."""
    text = section(WHOLE, "Fuzzing")
    assert "30,000,000 executions" in text
    assert "| `codec` | 2,727,273 | 40 | 123 | 77 | 0 |" in text
    assert "2 planted bugs, one for each target, and each was found." in text
    assert "| `key` | a key may hold a comma | 17 |" in text
    assert "30,000,000 executions by atheris." in text


def test_fuzzing_by_chance() -> None:
    """Where nothing guided it, that is said; several runs of one target are not one long one."""
    parts = everything(10.0)
    first = parts["fuzz"].stored[0].report
    text = section(page.write(parts, 10.0), "Fuzzing")
    assert "| `key` | 27,272,727 | 40 | 123 | 77 | 0 |" in text
    blind = first._replace(counts={**first.counts, "guided": False, "engine": "random"})
    stored = [parts["fuzz"].stored[0]._replace(report=blind), *parts["fuzz"].stored[1:]]
    parts["fuzz"] = parts["fuzz"]._replace(found=stored)
    text = section(page.write(parts, 10.0), "Fuzzing")
    assert "*some or all without guidance by coverage*" in text
    assert "by atheris" not in text


def test_what_was_not_run() -> None:
    """It is said where the result would be, and at the top; and nothing is claimed of it."""
    partly = without(without(everything(), "simulate", 3), "search", 0)
    text = page.write(partly, 1.0)
    jobs = len(partly["simulate"].jobs)
    assert f"*Not run to its end: 3 of {jobs} jobs.*" in section(text, "Simulation")
    assert "30,000 schedules" in section(text, "Simulation")
    assert "5,000,000" not in text
    assert "*Not run: there is no report of it.*" in section(text, "Exhaustive search")
    assert "there is no schedule that breaks a promise" not in text
    assert "**Not complete.**" in text
    assert "Not run, or not to the end: search, simulate." in text


def test_nothing_was_run() -> None:
    """A page without a single report has no number of one."""
    nothing = everything()
    for name in nothing:
        nothing = without(nothing, name, 0)
    text = page.write(nothing, 1.0)
    assert text.count("*Not run: there is no report of it.*") == len(nothing)
    assert "**Nothing was run yet.**" in text
    assert not re.search(r"No violation( in \d|\.)", text)
    assert "`0123" not in text


@pytest.mark.parametrize(
    "part", ["simulate", "search", "planted", "crash-sqlite", "linearize", "fuzz-planted"]
)
def test_violations(part: str) -> None:
    """One is enough: it stands at the top with the command that found it, and its part claims nothing."""
    text = page.write(instead(everything(), part, violations=["I3 is broken\nby seed 17"]), 1.0)
    top = text.partition("## ")[0]
    assert top.startswith("# Evidence\n\n**1 violation found.**")
    assert ": I3 is broken\n\n  ```text\n  by seed 17\n  ```\n" in top
    command = shlex.join(everything()[part].jobs[0].command)
    assert f"`python -m {command}`" in top
    assert "No violation.**" not in text
    claims = (
        "No violation in", "there is no schedule", "each was caught", "was right each time", "each was found"
    )  # fmt: skip
    stored = {claim: text.count(claim) for claim in claims}
    before = {claim: WHOLE.count(claim) for claim in claims}
    assert sum(stored.values()) == sum(before.values()) - 1


def test_many_violations() -> None:
    """They have one reason, and a page has an end."""
    text = page.write(
        instead(everything(), "simulate", violations=[f"I1 by {seed}" for seed in range(99)]), 1.0
    )
    assert "**99 violations found.**" in text
    assert "I1 by 19" in text
    assert "I1 by 20" not in text
    assert "- … and 79 more" in text


def test_several_revisions() -> None:
    """Each part says from which; what was not committed is said."""
    later = AT._replace(revision="f" * 40, clean=False)
    text = page.write(instead(everything(), "planted", at=later, began="2026-11-17T00:00:00+00:00"), 1.0)
    assert "made between 2026-11-16 and 2026-11-17" in flat(text)
    assert "They come from several revisions" in flat(text)
    assert "| planted | 1 | revision `ffffffffffff` *with changes that were not committed* |" in text
    assert "| crash-sqlite | 4 | revision `0123456789ab` |" in text
    text = page.write(instead(everything(), "crash-sqlite", at=AT._replace(revision="f" * 40)), 1.0)
    assert "| crash-sqlite | 4 | revision `ffffffffffff`; revision `0123456789ab` |" in text
    unknown = AT._replace(revision=None, clean=False, postgresql=None)
    text = page.write(instead(everything(), "planted", at=unknown), 1.0)
    assert "| planted | 1 | a folder that is not a checkout |" in text


def test_cost() -> None:
    """What it took is what was measured: a minute for each report."""
    jobs = sum(len(part.jobs) for part in everything().values())
    took = f"The {jobs} jobs behind this page took {jobs // 60} h {jobs % 60} min, added up"
    assert took in section(WHOLE, "Run it yourself")


def test_sizes() -> None:
    """A try is called one."""
    assert "of 0.01 times the standard size" in page.write(everything(0.01), 0.01)


def test_reports_of_another_version() -> None:
    """Which lack what the page shows: it says whose they are and what to do, and makes up nothing."""
    parts = everything()
    first = parts["fuzz"].stored[0]
    old = first._replace(report=first.report._replace(counts={"runs": 3}))
    parts["fuzz"] = parts["fuzz"]._replace(found=[old])
    with pytest.raises(EvidenceError, match=r"the reports of fuzz .* `--fresh fuzz` makes them again"):
        page.write({**parts, "fuzz": parts["fuzz"]._replace(jobs=parts["fuzz"].jobs[:1])}, 1.0)


# --- what was found before


def test_found(tmp_path: Path) -> None:
    """What the tools found is taken over; an entry that is not complete is refused."""
    file = tmp_path / "found.toml"
    file.write_text(
        '[[found]]\nwhat = "a key was lost"\nby = "simulate --seed 17"\ntest = "tests/x.py::test_y"\n'
    )
    text = section(page.write(everything(), 1.0, file), "What was found, and fixed")
    assert "| a key was lost | simulate --seed 17 | `tests/x.py::test_y` |" in text
    file.write_text('[[found]]\nwhat = "a key was lost"\n')
    with pytest.raises(EvidenceError, match=r"found\.toml: an entry has no 'by'"):
        page.write(everything(), 1.0, file)
    file.write_text("")
    assert "None so far." in page.write(everything(), 1.0, file)


def test_what_was_found_is_kept() -> None:
    """Each entry names a test that there is, or a file that has some."""
    for entry in tomllib.loads(page.FOUND.read_text(encoding="utf-8")).get("found", []):
        file, _, test = entry["test"].partition("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        functions = [
            node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        tests = [function.name for function in functions if function.name.startswith("test_")]
        assert tests if not test else test.rpartition("::")[2].partition("[")[0] in tests, entry


# --- prose, and the page that is there


def test_lines_are_broken() -> None:
    """Prose is no wider here than elsewhere; tables and code are as wide as they are."""
    prose = re.sub(r"^```.*?^```", "", WHOLE, flags=re.M | re.S)
    assert [line for line in prose.splitlines() if len(line) > markdown.WIDTH and line[0] != "|"] == []


def test_every_promise_is_explained() -> None:
    """The page has a line for each promise that a monitor may name, and for no other."""
    explained = re.findall(r"^\| (I\d+) \|", WHOLE, re.M)
    assert explained == list(PROMISES)


def test_is_published() -> None:
    """What is committed was made by this program: it has this prose."""
    published = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    headings = re.findall(r"^#+ .*$", page.TEMPLATE.read_text(encoding="utf-8"), re.M)
    assert re.findall(r"^#+ .*$", published, re.M) == headings
    assert "$" not in published


# --- what it is written with


def test_totals() -> None:
    """Tables are added at any depth; of what is slowest, the slowest counts; words stay."""
    one = {"a": 1, "slowest": 2.5, "name": "x", "table": {"b": 1, "deep": {"c": 1}}}
    other = {"a": 2, "slowest": 1.5, "name": "x", "table": {"deep": {"c": 2, "d": 5}}}
    assert total([one, other]) == {
        "a": 3, "slowest": 2.5, "name": "x", "table": {"b": 1, "deep": {"c": 3, "d": 5}}
    }  # fmt: skip
    assert one["table"] == {"b": 1, "deep": {"c": 1}}
    assert total([]) == {}


def test_writing() -> None:
    """Numbers with commas and to the right, nothing that breaks a table, and a cautious rule of three."""
    assert markdown.table(["a", "b"], [["x|y\nz", 1_234], ["w", 2.25]]) == (
        "| a | b |\n| --- | ---: |\n| x\\|y z | 1,234 |\n| w | 2.2 |"
    )
    assert markdown.counted({"few": 1, "many": 2_000, "a few": 1}) == "many: 2,000; a few: 1; few: 1"
    assert markdown.one_in(5_000_000) == "one in 1,666,666"
    assert markdown.plural(1, "job") == "1 job"
    assert markdown.plural(2, "history", "histories") == "2 histories"
