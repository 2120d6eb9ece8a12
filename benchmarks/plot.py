"""Draws the ratios as bars, fit for a page."""

from collections.abc import Mapping
from pathlib import Path

from benchmarks import goals
from benchmarks.rounds import Measured, economy

OURS, OTHERS, BARE, INK, FAINT = "#2a6f8f", "#b9c2c9", "#5c6b73", "#26323a", "#8a969e"
GOAL = "#c8743c"
KEY = "Orange: the goal. Thin line: half of the rounds."
ROW = 0.34
"""Inches of height for a bar."""


def draw(results: Mapping[str, Measured], caption: str, file: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    groups: dict[str, list[Measured]] = {}
    for measured in results.values():
        groups.setdefault(measured.variant.group, []).append(measured)
    rows = [len(members) for members in groups.values()]
    with pyplot.rc_context({"font.family": "sans-serif", "svg.fonttype": "none", "text.color": INK}):
        figure, panels = pyplot.subplots(
            len(groups),
            1,
            squeeze=False,
            # Each has a scale of its own: where the handler is slow, a replay is many times as fast.
            sharex=False,
            figsize=(8.6, ROW * (sum(rows) + 2.4 * len(rows)) + 0.6),
            gridspec_kw={"height_ratios": rows},
        )
        for panel, (group, members) in zip(panels[:, 0], groups.items(), strict=True):
            _draw_group(panel, group, members, results)
        figure.text(0.01, 0.008, f"{KEY} {caption}", fontsize=7.5, color=FAINT)
        figure.tight_layout(rect=(0, 0.03, 1, 1))
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, format="svg", metadata={"Date": None})
        pyplot.close(figure)


def _draw_group(panel: object, group: str, members: list[Measured], results: Mapping[str, Measured]) -> None:
    from matplotlib.axes import Axes

    assert isinstance(panel, Axes)
    for place, measured in enumerate(members):
        variant = measured.variant
        cpu = economy(measured, results[variant.baseline])
        bare = variant.name == variant.baseline
        panel.barh(place, cpu.median, height=0.62, color=BARE if bare else OTHERS if variant.rival else OURS)
        panel.plot([cpu.low, cpu.high], [place, place], color=INK, linewidth=1, solid_capstyle="butt")
        panel.text(
            max(cpu.median, cpu.high) + 0.02,
            place,
            f"{cpu.median:.0%}",
            va="center",
            fontsize=9,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )
        goal = goals.goal_of(goals.ratio(variant.name))
        if goal and goal.at_least:
            panel.plot([goal.at_least] * 2, [place - 0.42, place + 0.42], color=GOAL, linewidth=1.6)
    panel.axvline(1, color=FAINT, linewidth=0.8, linestyle=(0, (3, 3)), zorder=0)
    panel.set_yticks(range(len(members)), [measured.variant.label for measured in members], fontsize=9)
    panel.invert_yaxis()
    panel.set_title(
        f"{group}: requests for the same processor time, relative to bare", loc="left", fontsize=10, color=INK
    )
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    panel.tick_params(axis="both", length=0, colors=INK, labelsize=9)
    panel.tick_params(axis="x", colors=FAINT, labelbottom=True)
    panel.margins(x=0.12)
    panel.set_xlim(left=0)
    for side in ("top", "right", "left", "bottom"):
        panel.spines[side].set_visible(False)
