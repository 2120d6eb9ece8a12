"""Draws `how-it-works.svg`: what happens to a request with a key.

    python docs/diagram.py > docs/how-it-works.svg

It has a ground of its own, so that it can be read on a light page and on a dark one, whatever the browser's
idea of the two is.
"""

import sys
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 860, 640

STYLE = """
  .ground { fill: #ffffff; stroke: #d0d7de }
  .box { fill: #f6f8fa; stroke: #8c959f }
  .store { fill: #ddf4ff; stroke: #0969da }
  .handler { fill: #fff8c5; stroke: #9a6700 }
  .good { fill: #dafbe1; stroke: #1a7f37 }
  .stop { fill: #ffebe9; stroke: #cf222e }
  .line { fill: none; stroke: #57606a; stroke-width: 1.5 }
  .lost { stroke-dasharray: 5 4 }
  .tip { fill: #57606a }
  text { fill: #1f2328; font: 14px system-ui, sans-serif }
  .title { font-weight: 600; font-size: 15px }
  .small { fill: #57606a; font-size: 12.5px }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117; stroke: #30363d }
    .box { fill: #161b22; stroke: #6e7681 }
    .store { fill: #0c2d4d; stroke: #4493f8 }
    .handler { fill: #3a2d05; stroke: #d29922 }
    .good { fill: #0f2f1a; stroke: #3fb950 }
    .stop { fill: #3d1214; stroke: #f85149 }
    .line { stroke: #9198a1 }
    .tip { fill: #9198a1 }
    text { fill: #f0f6fc }
    .small { fill: #b1bac4 }
  }
"""


class Box(NamedTuple):
    kind: str
    x: int
    y: int
    width: int
    title: str
    detail: str

    height = 58

    @property
    def middle(self) -> tuple[int, int]:
        return self.x + self.width // 2, self.y + self.height // 2

    def draw(self) -> str:
        x, _ = self.middle
        return (
            f'<rect class="{self.kind}" x="{self.x}" y="{self.y}" width="{self.width}" '
            f'height="{self.height}" rx="7"/>'
            f'<text class="title" x="{x}" y="{self.y + 24}" text-anchor="middle">{escape(self.title)}</text>'
            f'<text class="small" x="{x}" y="{self.y + 44}" text-anchor="middle">{escape(self.detail)}</text>'
        )


def path(points: str, *, lost: bool = False) -> str:
    return f'<path class="line{" lost" if lost else ""}" d="{points}" marker-end="url(#tip)"/>'


def label(x: int, y: int, text: str, anchor: str = "start") -> str:
    return f'<text class="small" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def down(upper: Box, lower: Box) -> str:
    x, _ = upper.middle
    return path(f"M{x} {upper.y + Box.height} V{lower.y - 2}")


LEFT, RIGHT, MAIN, SIDE = 30, 560, 250, 270
arrives = Box("box", LEFT, 30, MAIN, "a request with a key", "without one it passes untouched")
reads = Box("box", LEFT, 124, MAIN, "whose key, and for what?", "scope, whole body, fingerprint")
reserves = Box("store", LEFT, 218, MAIN, "reserve", "one atomic step of the store")
runs = Box("handler", LEFT, 348, MAIN, "run the handler", "its lease is renewed meanwhile")
stores = Box("store", LEFT, 452, MAIN, "store the response", "fenced; rows are committed with it")
sends = Box("good", LEFT, 546, MAIN, "send the response", "never before it is durable")

replays = Box("good", RIGHT, 30, SIDE, "replay", "the stored status, headers and bytes")
busy = Box("stop", RIGHT, 112, SIDE, "409 in-flight", "with Retry-After, or it waits")
unknown = Box("stop", RIGHT, 194, SIDE, "409 outcome-unknown", 'or run again: abandoned="retry"')
other = Box("stop", RIGHT, 276, SIDE, "422 key-reused", "the first response stays")
releases = Box("box", RIGHT, 380, SIDE, "release the key", "the response is sent, the next retry runs")
abandoned = Box("box", RIGHT, 484, SIDE, "abandoned", "once its lease is over")

FOUND = [
    (replays, "completed, or failed"),
    (busy, "in progress"),
    (unknown, "abandoned"),
    (other, "another request"),
]


def draw() -> str:
    bus = 385
    from_x, from_y = LEFT + MAIN, reserves.middle[1]
    found = [path(f"M{bus} {box.middle[1]} H{RIGHT - 2}") for box, _ in FOUND]
    labels = [label(bus + 12, box.middle[1] - 7, text) for box, text in FOUND]
    top, bottom = replays.middle[1], other.middle[1]
    turn = 330
    parts = [
        *(box.draw() for box in (arrives, reads, reserves, runs, stores, sends)),
        *(box.draw() for box in (replays, busy, unknown, other, releases, abandoned)),
        *(down(one, two) for one, two in ((arrives, reads), (reads, reserves), (reserves, runs))),
        *(down(one, two) for one, two in ((runs, stores), (stores, sends))),
        f'<path class="line" d="M{from_x} {from_y} H{bus} M{bus} {top} V{bottom}"/>',
        *found,
        *labels,
        label(from_x + 10, from_y - 7, "there is one"),
        label(LEFT + MAIN // 2 + 12, 316, "there is none, or it has expired"),
        path(f"M{from_x} {runs.middle[1] - 8} H{turn + 20} V{releases.middle[1]} H{RIGHT - 2}"),
        label(turn + 32, releases.middle[1] - 7, "known: nothing was done"),
        path(f"M{from_x} {runs.middle[1] + 10} H{turn} V{abandoned.middle[1]} H{RIGHT - 2}", lost=True),
        label(turn + 32, abandoned.middle[1] - 7, "killed or cut off"),
        label(RIGHT, abandoned.y + Box.height + 22, "How far it came is not known."),
        label(RIGHT, abandoned.y + Box.height + 40, "In a transaction: undone, so the retry runs."),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" aria-label="What happens to a request with a key">\n'
        f"<style>{STYLE}</style>\n"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>\n'
        f'<rect class="ground" x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="12"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    sys.stdout.write(draw())
