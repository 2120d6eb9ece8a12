"""The table that anyone understands, what follows from it, and the verdict."""

from collections.abc import Callable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from retrysafe.demo.console import euros
from retrysafe.demo.story import Act


def table(acts: Sequence[Act]) -> Table:
    """The acts side by side."""
    found = Table(box=box.SIMPLE_HEAD, expand=True, header_style="bold")
    found.add_column("")
    for act in acts:
        found.add_column(act.title.replace(", ", ",\n"), justify="right", vertical="bottom", no_wrap=True)

    def row(name: str, cell: Callable[[Act], str | Text], *, last: bool = False) -> None:
        found.add_row(name, *(cell(act) for act in acts), end_section=last)

    def guarded(name: str, number: Callable[[Act], int], *, last: bool = False) -> None:
        """Something that nobody can say about requests without a key."""
        row(name, lambda act: str(number(act)) if act.keys else "-", last=last)

    row("Payments intended", lambda act: str(act.intended))
    row("Requests sent", lambda act: str(act.sent))
    row("  that got no answer", lambda act: str(act.unanswered))
    row("Duplicates the server received", lambda act: str(act.counts["arrived"] - act.intended))
    guarded("  answered as before (replay)", lambda act: act.counts["replayed"])
    guarded("  still running (409 conflict)", lambda act: act.counts["in-flight"], last=True)
    guarded("Unknown outcomes", lambda act: len(act.settled) + act.left)
    guarded("  told so meanwhile (409)", lambda act: act.counts["outcome-unknown"])
    guarded("  was taken: resolved as done", lambda act: len([one for one in act.settled if one.charge]))
    guarded(
        "  was not: released, and retried",
        lambda act: len([one for one in act.settled if not one.charge]),
        last=True,
    )
    row("Money that should be taken", lambda act: euros(act.balance.should))
    row("Money that was taken", lambda act: euros(act.balance.taken))
    row("Difference", lambda act: _verdict(act.balance.difference, _signed(act.balance.difference)))
    row(
        "Customers charged or told wrong",
        lambda act: _verdict(len(act.balance.wrong), str(len(act.balance.wrong))),
    )
    return found


def _verdict(amount: int, text: str) -> Text:
    return Text(text, "bold red" if amount else "bold green")


def _signed(cents: int) -> str:
    return f"+{euros(cents)}" if cents > 0 else euros(cents)


def conclusion(acts: Sequence[Act]) -> str:
    """What a reader should remember.  Only for a run without troubles."""
    without, _, killed = acts
    return (
        f"Without keys, {len(without.balance.wrong)} of {without.intended} customers were charged wrongly, "
        f"and {euros(without.balance.difference)} was taken that nobody owed. With keys, the same customers "
        "on the same bad network paid what they meant to pay: a retry gets the first answer, not a second "
        f"charge. When the server was killed, {len(killed.settled)} payments were in doubt. Nobody guessed: "
        "each was held until an operator had looked, and then settled."
    )


def troubles(acts: Sequence[Act]) -> list[str]:
    """Why this run does not show what it should; nothing if it does."""
    return [f"{act.title}: {trouble}" for act in acts for trouble in _troubles(act)]


def _troubles(act: Act) -> list[str]:
    if not act.keys:
        enough = act.balance.difference > 0
        return [] if enough else ["no money was taken twice, so the comparison shows nothing"]
    found = [f"{order} {what}" for order, what in act.balance.wrong.items()]
    found += [f"a customer got no receipt: {refusal}" for refusal in act.refused]
    if act.balance.difference:
        found.append(f"{euros(act.balance.taken)} was taken and should have been {euros(act.balance.should)}")
    if act.left:
        found.append(f"{act.left} payments are still in doubt")
    if act.killed:
        kinds = {one.charge is not None for one in act.settled}
        if len(kinds) < 2:
            found.append("no operator had to settle both a payment that had been taken and one that had not")
    return found
