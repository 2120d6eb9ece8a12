"""The page: the prose of `page.md`, and the reports in their places.

Nothing is claimed without a report.  What was not run, or not to its end, says so where its result would be.
The same reports make the same page, byte for byte.
"""

import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from tools.evidence import sections
from tools.evidence.errors import EvidenceError
from tools.evidence.jobs import Job
from tools.evidence.markdown import number, plural, prose, table
from tools.evidence.progress import duration
from tools.evidence.reports import StoredReport

TEMPLATE = Path(__file__).with_name("page.md")
MOST_SHOWN = 20
"""Violations on the page: more of them have the same cause."""

FOUND = Path(__file__).with_name("found.toml")


class Part(NamedTuple):
    jobs: Sequence[Job]
    found: Sequence[StoredReport | None]
    """For each job its report, if there is one."""

    @property
    def stored(self) -> list[StoredReport]:
        return [stored for stored in self.found if stored is not None]

    @property
    def is_whole(self) -> bool:
        return None not in self.found


def write(parts: Mapping[str, Part], size: float, found: Path = FOUND) -> str:
    nothing = Part((), ())
    runs = {part: parts.get(part, nothing).stored for part in ("simulate", "simulate-operations", *CRASHES)}
    contents: dict[str, Callable[[Sequence[StoredReport]], str]] = {
        "simulate": sections.simulate,
        "simulate-operations": sections.simulate,
        "simulate-callbacks": sections.simulate_callbacks,
        "coverage": sections.coverage,
        "search": sections.search,
        "planted": sections.planted,
        **dict.fromkeys(CRASHES, sections.crash),
        "linearize": sections.linearize,
        "fuzz": sections.fuzz,
        "fuzz-planted": sections.fuzz_planted,
    }
    filled = {
        name.replace("-", "_"): _section(name, parts.get(name, nothing), make)
        for name, make in contents.items()
    }
    page = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        filled,
        headline=_headline(parts, size),
        results=_results(parts),
        made=_made(parts),
        cost=_cost(parts),
        where=_where(parts),
        found=_found(found),
        histories=sections.histories(runs),
    )
    return page.rstrip() + "\n"


def _section(name: str, part: Part, make: Callable[[Sequence[StoredReport]], str]) -> str:
    if not part.stored:
        return "*Not run: there is no report of it.*"
    try:
        text = make(part.stored)
    except (KeyError, ValueError, TypeError) as error:
        raise EvidenceError(
            f"the reports of {name} do not have what this page needs ({type(error).__name__}: {error}): "
            f"another version wrote them; `--fresh {name}` makes them again"
        ) from error
    if part.is_whole:
        return text
    return f"*Not run to its end: {len(part.stored)} of {plural(len(part.jobs), 'job')}.*\n\n{text}"


def _headline(parts: Mapping[str, Part], size: float) -> str:
    """The worst first."""
    broken = [
        _broken(job, violation)
        for part in parts.values()
        for job, stored in zip(part.jobs, part.found, strict=True)
        for violation in (stored.report.violations if stored else ())
    ]
    jobs = sum(len(part.jobs) for part in parts.values())
    done = sum(len(part.stored) for part in parts.values())
    scale = "the standard size" if size == 1 else f"{size:g} times the standard size"
    if done < jobs:
        extent = f"{number(done)} of {number(jobs)} jobs were run, of {scale}"
    else:
        extent = f"All {number(jobs)} jobs were run, of {scale}"
    if not done:
        return "**Nothing was run yet.** This page has what would be."
    if broken:
        text = [
            *broken[:MOST_SHOWN],
            *([f"- … and {more} more"] if (more := len(broken) - MOST_SHOWN) > 0 else []),
        ]
        return f"**{plural(len(broken), 'violation')} found.** {extent}.\n\n" + "\n".join(text)
    if done < jobs:
        missing = [name for name, part in parts.items() if not part.is_whole]
        return prose(
            f"**Not complete.** {extent}. Not run, or not to the end: {', '.join(missing)}. "
            "No violation in the rest."
        )
    return f"**No violation.** {extent}."


def _schedules(counts: Mapping[str, Any]) -> str:
    return plural(counts["schedules"], "random schedule")


def _faults(counts: Mapping[str, Any]) -> str:
    return ", ".join(plural(counts[kind], kind[:-1]) for kind in sections.FAULTS if counts.get(kind))


CRASHES = tuple(
    f"crash-{door}{store}"
    for door in ("", "operations-", "callbacks-")
    for store in ("sqlite", "postgresql", "mariadb", "valkey")
)

RESULTS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "simulate": _schedules,
    "simulate-operations": _schedules,
    "simulate-callbacks": _schedules,
    "search": lambda counts: (
        plural(
            sum(
                row["schedules"] for bound in counts["bounds"].values() for row in bound["settings"].values()
            ),
            "schedule",
        )
        + ", every one within the bounds"
    ),
    "planted": lambda counts: f"{plural(len(counts['bugs']), 'planted bug')} caught",
    **dict.fromkeys(CRASHES, _faults),
    "linearize": lambda counts: plural(counts["histories"], "generated history", "generated histories"),
    "fuzz": lambda counts: plural(counts["executions"], "execution"),
    "fuzz-planted": lambda counts: f"{plural(len(counts['targets']), 'planted bug')} hunted",
}
"""What was run in each part, in the order in which the page has them.  Coverage has no violations to find."""


def _results(parts: Mapping[str, Part]) -> str:
    """The result of each part in one line; parts without a report are missing."""
    rows = [
        [name, text(sections.total_of(part.stored)), sum(len(one.report.violations) for one in part.stored)]
        for name, text in RESULTS.items()
        if (part := parts.get(name)) and part.stored
    ]
    return table(["part", "what was run", "violations"], rows) if rows else ""


def _broken(job: Job, violation: str) -> str:
    """What was broken, and by which command; how it happened, as the tool printed it."""
    first, *rest = violation.strip().splitlines()
    line = f"- `{job.name}` (`python -m {shlex.join(job.command)}`): {first}"
    if not rest:
        return line
    return "\n".join([line, "", "  ```text", *(f"  {more}".rstrip() for more in rest), "  ```", ""])


def _made(parts: Mapping[str, Part]) -> str:
    stored = [one for part in parts.values() for one in part.stored]
    if not stored:
        return "There are no reports so far."
    began = sorted(one.report.began[:10] for one in stored)
    when = f"on {began[0]}" if began[0] == began[-1] else f"between {began[0]} and {began[-1]}"
    revisions = _revisions(stored)
    source = f" from {revisions[0]}," if len(revisions) == 1 else ""
    machines = sorted({_machine(one) for one in stored})
    text = prose(
        f"{_all(len(stored))} made {when},{source} with {'; '.join(machines)}. A report counts only as long "
        "as the code that it is about is the code that is there: both what is tested and the tool that tests "
        "it, byte for byte."
    )
    if len(revisions) == 1:
        return text
    rows = [
        [name, len(part.stored), "; ".join(_revisions(part.stored))]
        for name, part in parts.items()
        if part.stored
    ]
    why = prose(
        "They come from several revisions, between which the code that a part is about has not changed:"
    )
    return f"{text}\n\n{why}\n\n{table(['part', 'reports', 'made from'], rows)}"


def _all(reports: int) -> str:
    return "The one report was" if reports == 1 else f"All {number(reports)} reports were"


def _cost(parts: Mapping[str, Part]) -> str:
    """What was measured."""
    stored = [one for part in parts.values() for one in part.stored]
    if not stored:
        return "How long that takes was not measured yet."
    took = sum(one.report.seconds for one in stored)
    return prose(
        f"The {plural(len(stored), 'job')} behind this page took {duration(took)}, added up; as many are run "
        f"at a time as there are cores, so with two it is about {duration(took / 2)}."
    )


def _revisions(stored: Sequence[StoredReport]) -> list[str]:
    """In the order in which they came."""
    return list(dict.fromkeys(_revision(one) for one in sorted(stored, key=lambda one: one.report.began)))


def _revision(stored: StoredReport) -> str:
    revision, clean = stored.environment.revision, stored.environment.clean
    if revision is None:
        return "a folder that is not a checkout"
    return f"revision `{revision[:12]}`" + ("" if clean else " *with changes that were not committed*")


def _machine(stored: StoredReport) -> str:
    at = stored.environment
    servers = {"PostgreSQL": at.postgresql, "MariaDB": at.mariadb, "Valkey": at.valkey}
    databases = ", ".join(
        [f"SQLite {at.sqlite}", *(f"{name} {version}" for name, version in servers.items() if version)]
    )
    return f"{at.python}, {databases}, {at.system}, {plural(at.cpus, 'core')}"


def _where(parts: Mapping[str, Part]) -> str:
    systems = sorted({stored.environment.system for part in parts.values() for stored in part.stored})
    return f"All of it ran on {' and '.join(systems)}." if systems else ""


def _found(path: Path) -> str:
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("found", [])
    if not entries:
        return "None so far."
    try:
        rows = [[entry["what"], entry["by"], f"`{entry['test']}`"] for entry in entries]
    except KeyError as error:
        raise EvidenceError(
            f"{path.name}: an entry has no {error}: expected what, by and test in each"
        ) from error
    return table(["what", "found by", "its test"], rows)
