"""The page's section of each part: from reports to Markdown, and no number is written by hand."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from retrysafe.testing.simulate.actions import MEANING
from retrysafe.testing.simulate.callbacks.walk import MEANING as MEANING_OF_CALLBACKS
from tools.evidence.coverage import share
from tools.evidence.markdown import counted, number, one_in, paragraphs, plural, table
from tools.evidence.reports import StoredReport
from tools.planted.bug import REASONED

Section = Callable[[Sequence[StoredReport]], str]


def simulate(stored: Sequence[StoredReport]) -> str:
    heard = {"what clients received": "verdicts"}
    return _schedules(stored, heard, MEANING)


def simulate_callbacks(stored: Sequence[StoredReport]) -> str:
    heard = {"what senders were told": "verdicts", "how turns of workers ended": "work"}
    return _schedules(stored, heard, MEANING_OF_CALLBACKS)


def _schedules(stored: Sequence[StoredReport], heard: Mapping[str, str], meaning: Mapping[Any, str]) -> str:
    """`heard`: for each column besides, which tally of a setting it shows."""
    counts = total_of(stored)
    stores = {store: total_of(of) for store, of in _by_option(stored, "--store").items()}
    rows = [
        [name, row["schedules"], row["actions"], *(counted(row[tally]) for tally in heard.values())]
        for name, row in counts["settings"].items()
    ]
    happened = total(row["faults"] for row in counts["settings"].values())
    each = " and ".join(f"{number(of['schedules'])} on the {NAMES[store]}" for store, of in stores.items())
    return paragraphs(
        f"{plural(counts['schedules'], 'schedule')}, {each}, with {plural(counts['actions'], 'step')} "
        f"altogether; {_seeds(stored, '--schedules')}.",
        _rule_of_three(counts["schedules"], "schedule", stored),
        table(["setting", "schedules", "steps", *heard], rows),
        "What happened in them, all settings together:",
        table(
            ["", "", "times"],
            [[name, words, happened[name]] for name, words in meaning.items() if name in happened],
        ),
    )


def coverage(stored: Sequence[StoredReport]) -> str:
    """Not added up: jobs would execute the same lines."""
    [report] = [one.report for one in stored]
    parts: Mapping[str, Mapping[str, int]] = report.counts["parts"]
    rows = [[name, f"{share(row):.0f}%", row["executed"], row["lines"]] for name, row in parts.items()]
    return paragraphs(
        f"Lines of function bodies that were executed in {plural(report.counts['schedules'], 'schedule')} of "
        "all doors and settings, a tenth of them on SQLite, as `python -m tools.evidence.coverage` "
        "measures it:",
        table(["part of the product", "share", "lines executed", "lines"], rows),
    )


NAMES = {"memory": "store in memory", "sqlite": "real SQLite store"}


def search(stored: Sequence[StoredReport]) -> str:
    """A table for each bound."""
    blocks = [_all_or_nothing(stored, "Within these bounds there is no schedule that breaks a promise.")]
    for bound, found in total_of(stored)["bounds"].items():
        settings: Mapping[str, Any] = found["settings"]
        schedules, states = (sum(row[name] for row in settings.values()) for name in ("schedules", "states"))
        blocks += [
            f"At most {bound}: {plural(schedules, 'schedule')}, {plural(states, 'different state')}.",
            table(
                ["setting", "attempts", "states", "schedules"],
                [[name, row["attempts"], row["states"], row["schedules"]] for name, row in settings.items()],
            ),
        ]
    return paragraphs(*blocks)


def planted(stored: Sequence[StoredReport]) -> str:
    bugs: Mapping[str, Any] = total_of(stored)["bugs"]
    took = sorted(row["schedules"] for row in bugs.values() if row["schedules"] is not None)
    rows = [
        [name, row["seen"], *(_by_a_test(row) if row["schedules"] is None else _by_a_walk(row))]
        for name, row in bugs.items()
    ]
    thought_of = sum(row["seen"] == REASONED for row in bugs.values())
    return paragraphs(
        _all_or_nothing(
            stored,
            f"{plural(len(bugs), 'planted bug')}, and each was caught: "
            f"{number(len(took))} by the simulation, "
            f"half of them within {plural(took[(len(took) - 1) // 2], 'schedule')}, the last within "
            f"{number(took[-1])}; {number(len(bugs) - len(took))} by tests.",
        ),
        f"Mistakes that were really made: {number(len(bugs) - thought_of)} of them, and the table has where "
        f"they were seen. Mistakes that suggest themselves: {number(thought_of)}.",
        table(["bug", "where it was seen", "caught by", "schedules until then"], rows),
    )


def _by_a_walk(row: Mapping[str, Any]) -> list[object]:
    return [row["caught by"], row["schedules"]]


def _by_a_test(row: Mapping[str, Any]) -> list[object]:
    return [f"`{row['caught by']}`", ""]


def crash(stored: Sequence[StoredReport]) -> str:
    counts = total_of(stored)
    calls, lasting = CALLS[_door(stored[0])]
    faults = {kind: counts[kind] for kind in FAULTS if counts.get(kind)}
    return paragraphs(
        f"{', '.join(plural(times, kind[:-1]) for kind, times in faults.items())}, in "
        f"{plural(sum(counts['rounds'].values()), 'round')}; "
        f"{_seeds(stored)}.",
        _rule_of_three(sum(faults.values()), "fault", stored),
        table(
            ["", ""],
            [
                *([kind, number(times)] for kind, times in faults.items()),
                ["rounds, by mode and by how handlers reach the database", counted(counts["rounds"])],
                [calls, number(counts["requests"])],
                ["what they received", counted(counts["verdicts"])],
                [lasting, number(counts["answered"])],
                ["outcomes that stayed unknown, and were reported as such", number(counts["unknown"])],
                ["executions without a transaction", number(counts["executions outside"])],
                [
                    "those of them that nothing excuses, so that one more would have been found",
                    number(counts["executions without excuse"]),
                ],
                ["audits of the database, while it went on", number(counts["audits"])],
                ["slowest recovery, once faults had stopped", f"{number(counts['slowest recovery'])} s"],
            ],
        ),
        *_places(counts),
    )


CALLS: Mapping[str, tuple[str, str]] = {
    "request": ("requests", "keys that got a response that lasts"),
    "operation": ("calls", "keys that got a result that lasts"),
    "callback": ("deliveries", "events that were acknowledged"),
}
"""By door: what clients make, and of what the result is counted."""


def _door(stored: StoredReport) -> str:
    return _option(stored, "--door") if "--door" in stored.command else "request"


def _places(counts: Mapping[str, Any]) -> list[str]:
    """A line for each place that is aimed at, and two columns for each mode that has it."""
    strokes = {"kill": "killed", "stop": "frozen"}
    named: dict[str, dict[tuple[str, str], int]] = {}
    for name, times in counts["named places"].items():
        if not (found := _NAMED.fullmatch(name)):
            raise ValueError(f"{name!r} is not a named place")
        mode, stroke, place = found.groups()
        named.setdefault(place, {})[mode, strokes[stroke]] = times
    columns = [
        (mode, done)
        for mode in dict.fromkeys(mode for row in named.values() for mode, _ in row)
        for done in strokes.values()
    ]
    missed = [
        f"{done} {place} ({mode})"
        for mode, done in columns
        for place in sorted(named)
        if named[place].get((mode, done)) == 0
    ]
    tally: Mapping[str, int] = counts["places"]
    anywhere = [f"{done} {number(tally.get(f'{stroke} anywhere', 0))}" for stroke, done in strokes.items()]
    connections = {name: times for name, times in tally.items() if not name.startswith(tuple(strokes))}
    return [
        f"At any moment, workers were {' and '.join(anywhere)} times. The others were hit at "
        f"{plural(len(named), 'place')} that are aimed at, by mode; after the name of a step may stand how "
        "the handler ends for it to be reached.",
        table(
            ["place", *(f"{mode}, {done}" for mode, done in columns)],
            [
                [place, *(_times(row.get(column)) for column in columns)]
                for place, row in sorted(named.items())
            ],
        ),
        _missed(missed),
        _tally("what was done to a connection, and at which statement", connections) if connections else "",
    ]


def _missed(missed: Sequence[str]) -> str:
    if not missed:
        return "No named place was missed: at each, workers were killed and others frozen."
    if len(missed) > MOST_NAMED:
        return f"**{number(len(missed))} were never hit**: those with a 0 in this table."
    return f"**Never hit: {', '.join(missed)}.**"


MOST_NAMED = 20
"""Places in a sentence: after a short run there would be more."""

_NAMED = re.compile(r"(\w+): (kill|stop) (.+)")


def _times(times: int | None) -> str:
    """Nothing, where a mode has no such place."""
    return "" if times is None else number(times)


FAULTS = ("kills", "freezes", "server kills", "cuts", "outages")


def linearize(stored: Sequence[StoredReport]) -> str:
    """What was generated to test the checker."""
    counts = total_of(stored)
    return paragraphs(
        f"{plural(counts['histories'], 'generated history', 'generated histories')} of "
        f"{plural(counts['operations'], 'request')}, up to {counts['longest']} in one; "
        f"{_seeds(stored, '--histories')}. Some are valid by construction, the others "
        "were then broken by one change.",
        _all_or_nothing(
            stored,
            f"The checker accepted {number(counts['accepted'])} and rejected {number(counts['rejected'])} of "
            "them, and was right each time.",
        ),
        _tally(
            "what was changed", {name.replace("_", " "): times for name, times in counts["mutations"].items()}
        ),
    )


def histories(parts: Mapping[str, Sequence[StoredReport]]) -> str:
    """What came from runs, and was checked there."""
    found = {part: total_of(stored)["histories"] for part, stored in parts.items() if stored}
    if not found:
        return "*None: there is no report of a run.*"
    total_number = sum(found.values())
    return paragraphs(
        f"{plural(total_number, 'history', 'histories')}.",
        table(["from", "histories"], found.items()),
    )


def fuzz(stored: Sequence[StoredReport]) -> str:
    """Jobs of one target begin anew, so of what they bred the most counts, and not the sum."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for one in stored:
        for target, row in one.report.counts["targets"].items():
            found.setdefault(target, []).append(row)
    rows = [
        [
            f"`{target}`",
            sum(row["executions"] for row in runs),
            *(max(row[name] or 0 for row in runs) for name in ("longest", "features", "corpus")),
            sum(row["crash"] is not None for row in runs),
        ]
        for target, runs in found.items()
    ]
    executions = plural(sum(row["executions"] for runs in found.values() for row in runs), "execution")
    if all(one.report.counts["guided"] for one in stored):
        how = (
            f"{executions} by atheris. Inputs are not drawn at random but bred for coverage, so there is no "
            "rule of three here."
        )
    else:
        how = f"{executions}, *some or all without guidance by coverage*, because atheris was not installed."
    return paragraphs(
        how, table(["target", "executions", "longest input (bytes)", "features", "corpus", "crashes"], rows)
    )


def fuzz_planted(stored: Sequence[StoredReport]) -> str:
    bugs: Mapping[str, Any] = total_of(stored)["targets"]
    return paragraphs(
        _all_or_nothing(
            stored,
            f"{plural(len(bugs), 'planted bug')}, one for each target, and each was found. Seeds that show "
            "one by themselves are left out.",
        ),
        table(
            ["target", "bug", "executions until it was found"],
            [
                [f"`{target}`", row["bug"], row["executions"] if row["crash"] is not None else "not found"]
                for target, row in bugs.items()
            ],
        ),
    )


# --- what they have in common


def total_of(stored: Sequence[StoredReport]) -> dict[str, Any]:
    return total(one.report.counts for one in stored)


def _tally(what: str, tally: Mapping[str, int]) -> str:
    ordered = sorted(tally, key=lambda name: (-tally[name], name))
    return table([what, "times"], [[name, tally[name]] for name in ordered])


def _by_option(stored: Sequence[StoredReport], option: str) -> dict[str, list[StoredReport]]:
    found: dict[str, list[StoredReport]] = {}
    for one in stored:
        found.setdefault(_option(one, option), []).append(one)
    return found


def _option(stored: StoredReport, option: str) -> str:
    return stored.command[stored.command.index(option) + 1]


def _seeds(stored: Sequence[StoredReport], option: str = "") -> str:
    """Which seeds were run, those that follow each other as one range; `option` says how many one job had."""
    ranges = sorted(
        {(int(_option(one, "--seed")), int(_option(one, option)) if option else 1) for one in stored}
    )
    joined: list[tuple[int, int]] = []
    for first, times in ranges:
        if joined and joined[-1][1] >= first:
            joined[-1] = joined[-1][0], max(joined[-1][1], first + times)
        else:
            joined.append((first, first + times))
    if len(ranges) == 1 and ranges[0][1] == 1:
        return f"seed {ranges[0][0]:,}"
    return "seeds " + ", ".join(f"{first:,} to {end - 1:,}" for first, end in joined)


def _rule_of_three(cases: int, noun: str, stored: Sequence[StoredReport]) -> str:
    """Only where nothing was found: it is a rule about zero."""
    if any(one.report.violations for one in stored):
        return "**Violations were found**: they are at the top of this page."
    return (
        f"No violation in {number(cases)}: with 95% confidence, fewer than {one_in(cases)} {noun}s *of this "
        "kind* has one (the rule of three)."
    )


def _all_or_nothing(stored: Sequence[StoredReport], claim: str) -> str:
    if any(one.report.violations for one in stored):
        return "**This did not hold**: see the top of this page."
    return claim


MOST = ("slowest", "most", "largest", "longest", "deepest")
"""Numbers whose names begin so are no sums: the greatest counts."""


def total(counts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Tables are added row by row, at any depth; what is not a number stays as the last one had it."""
    found: dict[str, Any] = {}
    for one in counts:
        for name, value in one.items():
            before = found.get(name)
            if isinstance(value, Mapping):
                found[name] = total([before, value] if isinstance(before, Mapping) else [value])
            elif before is None or not _is_number(value):
                found[name] = value
            else:
                found[name] = max(before, value) if name.startswith(MOST) else before + value
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
