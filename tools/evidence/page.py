"""The page: the prose of `page.md`, and the reports in their places.

Nothing is claimed without a report.  What was not run, or not to its end, says so where its result would be.
The same reports make the same page, byte for byte.
"""

import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import NamedTuple

from tools.evidence import sections
from tools.evidence.errors import EvidenceError
from tools.evidence.jobs import Job
from tools.evidence.markdown import number, plural, prose, table
from tools.evidence.progress import duration
from tools.evidence.reports import Kept

TEMPLATE = Path(__file__).with_name("page.md")
MOST_TOLD = 20
"""Violations that the page tells: whoever has more has one reason for them."""

FOUND = Path(__file__).with_name("found.toml")


class Part(NamedTuple):
    jobs: Sequence[Job]
    found: Sequence[Kept | None]
    """For each job its report, if there is one."""

    @property
    def kept(self) -> list[Kept]:
        return [kept for kept in self.found if kept is not None]

    @property
    def is_whole(self) -> bool:
        return None not in self.found


def write(parts: Mapping[str, Part], size: float, found: Path = FOUND) -> str:
    nothing = Part((), ())
    runs = {part: parts.get(part, nothing).kept for part in ("simulate", "crash-sqlite", "crash-postgresql")}
    contents: dict[str, Callable[[Sequence[Kept]], str]] = {
        "simulate": sections.simulate,
        "search": sections.search,
        "planted": sections.planted,
        "crash-sqlite": sections.crash,
        "crash-postgresql": sections.crash,
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
        made=_made(parts),
        cost=_cost(parts),
        where=_where(parts),
        found=_found(found),
        histories=sections.histories(runs),
    )
    return page.rstrip() + "\n"


def _section(name: str, part: Part, make: Callable[[Sequence[Kept]], str]) -> str:
    if not part.kept:
        return "*Not run: there is no report of it.*"
    try:
        text = make(part.kept)
    except (KeyError, ValueError, TypeError) as error:
        raise EvidenceError(
            f"the reports of {name} are not as this page needs them ({type(error).__name__}: {error}): "
            f"another version has made them; `--fresh {name}` makes them anew"
        ) from error
    if part.is_whole:
        return text
    return f"*Not run to its end: {len(part.kept)} of {plural(len(part.jobs), 'job')}.*\n\n{text}"


def _headline(parts: Mapping[str, Part], size: float) -> str:
    """The worst first."""
    broken = [
        _broken(job, violation)
        for part in parts.values()
        for job, kept in zip(part.jobs, part.found, strict=True)
        for violation in (kept.report.violations if kept else ())
    ]
    jobs = sum(len(part.jobs) for part in parts.values())
    done = sum(len(part.kept) for part in parts.values())
    scale = "the standard size" if size == 1 else f"{size:g} times the standard size"
    if done < jobs:
        extent = f"{number(done)} of {number(jobs)} jobs were run, of {scale}"
    else:
        extent = f"All {number(jobs)} jobs were run, of {scale}"
    if not done:
        return "**Nothing was run yet.** This page shows what would be."
    if broken:
        told = [
            *broken[:MOST_TOLD],
            *([f"- … and {more} more"] if (more := len(broken) - MOST_TOLD) > 0 else []),
        ]
        return f"**{plural(len(broken), 'violation')} found.** {extent}.\n\n" + "\n".join(told)
    if done < jobs:
        missing = [name for name, part in parts.items() if not part.is_whole]
        return prose(
            f"**Not complete.** {extent}. Not run, or not to the end: {', '.join(missing)}. "
            "No violation in the rest."
        )
    return f"**No violation.** {extent}."


def _broken(job: Job, violation: str) -> str:
    """What was broken, and by what; how it came about, as the tool told it."""
    first, *rest = violation.strip().splitlines()
    line = f"- `{job.name}` (`python -m {shlex.join(job.command)}`): {first}"
    if not rest:
        return line
    return "\n".join([line, "", "  ```text", *(f"  {more}".rstrip() for more in rest), "  ```", ""])


def _made(parts: Mapping[str, Part]) -> str:
    kept = [one for part in parts.values() for one in part.kept]
    if not kept:
        return "So far there are none."
    began = sorted(one.report.began[:10] for one in kept)
    when = f"on {began[0]}" if began[0] == began[-1] else f"between {began[0]} and {began[-1]}"
    revisions = _revisions(kept)
    source = f" from {revisions[0]}," if len(revisions) == 1 else ""
    machines = sorted({_machine(one) for one in kept})
    told = prose(
        f"{_all(len(kept))} made {when},{source} with {'; '.join(machines)}. A report counts only as long as "
        "the code that it is about is the code that is there: both what is tested and the tool that tests "
        "it, byte for byte."
    )
    if len(revisions) == 1:
        return told
    rows = [
        [name, len(part.kept), "; ".join(_revisions(part.kept))] for name, part in parts.items() if part.kept
    ]
    why = prose(
        "They come from several revisions, between which the code that a part is about has not changed:"
    )
    return f"{told}\n\n{why}\n\n{table(['part', 'reports', 'made from'], rows)}"


def _all(reports: int) -> str:
    return "The one report was" if reports == 1 else f"All {number(reports)} reports were"


def _cost(parts: Mapping[str, Part]) -> str:
    """What was measured, and not what was hoped for."""
    kept = [one for part in parts.values() for one in part.kept]
    if not kept:
        return "How long that takes was not measured yet."
    took = sum(one.report.seconds for one in kept)
    return prose(
        f"The {plural(len(kept), 'job')} behind this page took {duration(took)}, added up; as many are run "
        f"at a time as there are cores, so with two it is about {duration(took / 2)}."
    )


def _revisions(kept: Sequence[Kept]) -> list[str]:
    """In the order in which they came."""
    return list(dict.fromkeys(_revision(one) for one in sorted(kept, key=lambda one: one.report.began)))


def _revision(kept: Kept) -> str:
    revision, clean = kept.circumstances.revision, kept.circumstances.clean
    if revision is None:
        return "a folder that is no checkout"
    return f"revision `{revision[:12]}`" + ("" if clean else " *with changes that were not committed*")


def _machine(kept: Kept) -> str:
    at = kept.circumstances
    databases = f"SQLite {at.sqlite}" + (f" and PostgreSQL {at.postgresql}" if at.postgresql else "")
    return f"{at.python}, {databases}, {at.system}, {plural(at.cpus, 'core')}"


def _where(parts: Mapping[str, Part]) -> str:
    systems = sorted({kept.circumstances.system for part in parts.values() for kept in part.kept})
    return f"All of it ran on {' and '.join(systems)}." if systems else ""


def _found(path: Path) -> str:
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("found", [])
    if not entries:
        return "None so far."
    try:
        rows = [[entry["what"], entry["by"], f"`{entry['test']}`"] for entry in entries]
    except KeyError as error:
        raise EvidenceError(f"{path.name}: an entry has no {error}: each has what, by and test") from error
    return table(["what", "found by", "kept by"], rows)
