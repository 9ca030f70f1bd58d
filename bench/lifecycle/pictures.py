"""Two pictures of the ledger benchmark: throughput, and latency, by the number of commands at the same time. SVG, written by hand.

Lines carry their names at their ends instead of a legend. Values are medians over the rounds. Both axes are logarithmic: an equal
distance is an equal factor. The panel is white in every theme of the page around it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from xml.sax.saxutils import escape

from bench.lifecycle.verdicts import LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

WIDTH, HEIGHT = 780, 460
LEFT, RIGHT, TOP, BOTTOM = 74, 210, 78, 60  # around the plot
CONCURRENCY: Final = (1, 16, 64, 256)
LABEL_GAP: Final = 17.0  # between the names of two lines
INK, FAINT, GRID = "#1f2328", "#59636e", "#e4e7eb"
MARKS: Final = (1, 2, 5)  # of each power of ten, on the axis of values
# Names, colours that differ for colour-blind readers as well and are dark enough for text on white, and widths.
STYLES: Final = {
    "quotebot": ("Quotebot", "#0b62b8", 3.5),
    "naive": ("naive program", "#8a6100", 2.0),
    "huey": ("huey", "#00785a", 2.0),
    "dbos": ("DBOS", "#bf4700", 2.0),
    "procrastinate": ("procrastinate", "#a63a7d", 2.0),
}
LIMIT_NAME: Final = "limit, one at a time"


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture: a figure of the rows, and its words."""

    file: str
    figure: str
    title: str
    subtitle: str
    axis: str


PICTURES: Final = (
    Picture("performance-throughput.svg", "ops_per_s", "Throughput", "Median; higher is better", "commands per second (log scale)"),
    Picture(
        "performance-latency.svg",
        "p50_ms",
        "Latency",
        "Half of all commands took no longer; lower is better",
        "p50 in ms (log scale)",
    ),
)
CLIENTS_AXIS: Final = "commands at the same time (log scale)"


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its points as (concurrency, value)."""

    name: str
    colour: str
    width: float
    points: tuple[tuple[int, float], ...]
    dashed: bool = False


def lines_of(rows: Iterable[Mapping[str, Any]], figure: str) -> list[Line]:
    """Return the lines of one figure from the ledger benchmark's rows. A row whose check failed is no point."""
    values = {row["variant"]: float(row[figure]) for row in rows if not row["size"] and row.get(figure)}
    found = []
    for kind, (name, colour, width) in STYLES.items():
        points = [(clients, values[variant]) for clients in CONCURRENCY if (variant := f"{kind} c={clients}") in values]
        if points:
            found.append(Line(name, colour, width, tuple(points)))
    if LIMIT in values:
        ends = ((CONCURRENCY[0], values[LIMIT]), (CONCURRENCY[-1], values[LIMIT]))
        found.append(Line(LIMIT_NAME, FAINT, 1.5, ends, dashed=True))
    return found


def draw(picture: Picture, lines: Sequence[Line]) -> str:
    """Return the SVG of a picture that has at least one line."""
    axis = Axis.around([value for line in lines for _, value in line.points])
    parts = [*_frame(picture, lines), *_grid(axis), *_axes(picture), *(_path(line, axis) for line in lines), *_names(lines, axis)]
    return "\n".join([*parts, "</svg>", ""])


@dataclass(frozen=True, slots=True)
class Axis:
    """The logarithmic axis of values."""

    least: float
    most: float

    @classmethod
    def around(cls, values: Sequence[float]) -> Axis:
        """Return the axis from the mark below the smallest value to the mark above the largest."""
        marks = [mark * 10.0**power for power in range(-3, 8) for mark in MARKS]
        below = [mark for mark in marks if mark <= min(values)]
        above = [mark for mark in marks if mark >= max(values)]
        least, most = max(below, default=marks[0]), min(above, default=marks[-1])
        return cls(least, most if most > least else 10 * least)

    @property
    def marks(self) -> list[float]:
        """The values that get a line and a number."""
        marks = [mark * 10.0**power for power in range(-3, 8) for mark in MARKS]
        return [mark for mark in marks if self.least <= mark <= self.most]

    def place(self, value: float) -> float:
        """Return the height of a value in the picture."""
        share = math.log(value / self.least) / math.log(self.most / self.least)
        return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)


def across(clients: int) -> float:
    """Return the place of a concurrency from the left."""
    return LEFT + math.log(clients) / math.log(CONCURRENCY[-1]) * (WIDTH - LEFT - RIGHT)


def number(value: float) -> str:
    """Format a value in three digits at most before the rest is noise: 12,300, 45.6, 0.52."""
    if value >= 1000:  # noqa: PLR2004 -- with separators from here
        digits = 2 - math.floor(math.log10(value))
        return f"{round(value, digits):,.0f}"
    return f"{value:.3g}"


def spread_out(wanted: Sequence[float], gap: float, top: float, bottom: float) -> list[float]:
    """Return heights near the wanted ones, in the same order, at least `gap` apart and inside the bounds if there is room."""
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    placed: list[float] = []
    for index in order:
        placed.append(max(wanted[index], placed[-1] + gap if placed else top))
    for back in range(len(placed) - 1, -1, -1):
        most = bottom if back == len(placed) - 1 else placed[back + 1] - gap
        placed[back] = min(placed[back], most)
    found = [0.0] * len(wanted)
    for index, height in zip(order, placed, strict=True):
        found[index] = height
    return found


def _text(x: float, y: float, words: str, *, size: int = 13, colour: str = INK, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"{more}>{escape(words)}</text>'


def _frame(picture: Picture, lines: Sequence[Line]) -> Iterator[str]:
    said = "; ".join(
        f"{line.name} {', '.join(f'{number(value)} at {clients}' for clients, value in line.points)}" for line in lines
    )
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">'
    )
    yield f"<title>{escape(f'{picture.title} by commands at the same time')}</title>"
    yield f"<desc>{escape(f'{picture.axis}: {said}')}</desc>"
    yield f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="12" fill="#ffffff" stroke="#d1d9e0"/>'
    yield _text(24, 34, picture.title, size=18, more=' font-weight="600"')
    yield _text(24, 54, picture.subtitle, colour=FAINT)


def _grid(axis: Axis) -> Iterator[str]:
    for mark in axis.marks:
        y = axis.place(mark)
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>'
        yield _text(LEFT - 10, y + 4, f"{mark:,.6g}", size=12, colour=FAINT, anchor="end")
    for clients in CONCURRENCY:
        yield f'<path d="M{across(clients):.1f} {HEIGHT - BOTTOM}v5" stroke="{FAINT}"/>'
        yield _text(across(clients), HEIGHT - BOTTOM + 20, str(clients), size=12, colour=FAINT, anchor="middle")


def _axes(picture: Picture) -> Iterator[str]:
    middle = (TOP + HEIGHT - BOTTOM) / 2
    yield f'<path d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}" stroke="{FAINT}"/>'
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16, CLIENTS_AXIS, colour=FAINT, anchor="middle")
    yield _text(22, middle, picture.axis, colour=FAINT, anchor="middle", more=f' transform="rotate(-90 22 {middle:.1f})"')


def _path(line: Line, axis: Axis) -> str:
    places = [(across(clients), axis.place(value)) for clients, value in line.points]
    track = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    stroke = f'stroke="{line.colour}" stroke-width="{line.width:g}"'
    if line.dashed:
        return f'<path d="M{track}" fill="none" {stroke} stroke-dasharray="6 5"/>'
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{line.width + 0.8:.1f}"/>' for x, y in places)
    return f'<path d="M{track}" fill="none" {stroke} stroke-linejoin="round"/><g fill="{line.colour}">{dots}</g>'


def _names(lines: Sequence[Line], axis: Axis) -> Iterator[str]:
    """Yield each line's name and last value beside its end. Names that are too close move apart; a thin line leads to each."""
    ends = [axis.place(line.points[-1][1]) for line in lines]
    for line, end, y in zip(lines, ends, spread_out(ends, LABEL_GAP, TOP, HEIGHT - BOTTOM), strict=True):
        clients, value = line.points[-1]
        x = across(clients) + 8
        yield f'<path d="M{x:.1f} {end:.1f}L{WIDTH - RIGHT + 20} {y:.1f}" stroke="{line.colour}" stroke-width="0.8"/>'
        weight = ' font-weight="600"' if line.width > 3 else ""  # noqa: PLR2004 -- the line of interest
        yield _text(WIDTH - RIGHT + 24, y + 4, f"{line.name}  {number(value)}", colour=line.colour, more=weight)
