"""Plots of figures as SVG: for each figure the bars of the oplog and of the programs beside it."""

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from tests.kits.figures.figure import Figure, Spread, shown

OURS = "oplog"
WIDTH, MARGIN = 760, 16
# The bars begin at LEFT and end at RIGHT at the latest. The rest is for names and values.
LEFT, RIGHT = 262, 540
_ROW, _LINE, _BAR = 26, 15, 14
_HEADING, _AXIS = 30, 40
_NAME_LETTERS, _HEADING_LETTERS = 36, 100
_MOST_TICKS = 4

# The picture has a background of its own: a page may show another theme than the system.
LIGHT = {
    "back": "#ffffff", "text": "#1f2328", "quiet": "#59636e", "grid": "#d1d9e0",
    "ours": "#0969da", "other": "#818b98",
}  # fmt: skip
DARK = {
    "back": "#0d1117", "text": "#f0f6fc", "quiet": "#9198a1", "grid": "#3d444d",
    "ours": "#1f6feb", "other": "#6e7681",
}  # fmt: skip


class Bar(NamedTuple):
    name: str
    spread: Spread


def svg(title: str, subtitle: str, figures: Sequence[Figure]) -> str:
    """Return the plot of at least one figure."""
    body: list[str] = []
    y = 60
    for figure in figures:
        body += _panel(figure, y)
        y += _height(figure)
    description = ". ".join([subtitle, *map(str, figures)])
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}"'
        f' height="{y}" role="img" aria-labelledby="title desc">',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="desc">{escape(description)}.</desc>',
        f"<style>{_style()}</style>",
        f'<rect class="back" width="{WIDTH}" height="{y}" rx="6"/>',
        _text(MARGIN, 28, title, "title"),
        _text(MARGIN, 46, subtitle, "unit"),
        *body,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def bars(figure: Figure) -> list[Bar]:
    """Return the bars, the best first."""
    found = [Bar(OURS, Spread.of(figure.ours))]
    found += [Bar(name, Spread.of(values)) for name, values in figure.beside.items()]
    return sorted(found, key=lambda bar: bar.spread.median, reverse=figure.more_is_better)


def ticks(largest: float) -> list[float]:
    """Return round values from 0 to at most the largest."""
    if largest <= 0:
        return [0.0]
    power = 10.0 ** math.floor(math.log10(largest / _MOST_TICKS))
    step = next(
        power * each for each in (1, 2, 5, 10, 20) if largest / (power * each) <= _MOST_TICKS
    )
    return [step * number for number in range(math.floor(largest / step) + 1)]


def short(value: float) -> str:
    """Return a value for the little room beside a bar, such as ``1.23 M``."""
    return f"{shown(value / 1e6)} M" if value >= 999_500 else shown(value)


def _value(spread: Spread) -> str:
    median = short(spread.median)
    if spread.least == spread.largest:
        return median
    return f"{median} ({short(spread.least)} to {short(spread.largest)})"


def _lines(bar: Bar) -> list[str]:
    return textwrap.wrap(bar.name, _NAME_LETTERS) or [""]


def _heading(figure: Figure) -> list[str]:
    better = "more" if figure.more_is_better else "less"
    return textwrap.wrap(f"{figure.name}: {figure.unit}, {better} is better", _HEADING_LETTERS)


def _heading_height(figure: Figure) -> int:
    return _HEADING + _LINE * (len(_heading(figure)) - 1)


def _row_height(bar: Bar) -> int:
    return _ROW + _LINE * (len(_lines(bar)) - 1)


def _height(figure: Figure) -> int:
    return _heading_height(figure) + sum(map(_row_height, bars(figure))) + _AXIS


def _panel(figure: Figure, top: int) -> Iterator[str]:
    shown_bars = bars(figure)
    largest = max(bar.spread.largest for bar in shown_bars)
    scale = (RIGHT - LEFT) / largest if largest > 0 else 0.0
    begin, end = top + _heading_height(figure), top + _height(figure) - _AXIS
    for number, line in enumerate(_heading(figure)):
        yield _text(MARGIN, top + 18 + _LINE * number, line, "heading")
    for tick in ticks(largest):
        x = LEFT + tick * scale
        yield f'<line class="grid" x1="{x:.1f}" y1="{begin}" x2="{x:.1f}" y2="{end + 4}"/>'
        yield _text(x, end + 18, short(tick), "tick")
    yield _text(RIGHT + MARGIN, end + 18, figure.unit, "unit")
    y = begin
    for bar in shown_bars:
        yield from _bar(bar, y, scale)
        y += _row_height(bar)


def _bar(bar: Bar, top: int, scale: float) -> Iterator[str]:
    lines, height = _lines(bar), _row_height(bar)
    middle = top + height / 2
    ours = bar.name == OURS
    for number, line in enumerate(lines):
        y = middle + 4 + _LINE * (number - (len(lines) - 1) / 2)
        yield _text(LEFT - 10, y, line, "name ours-name" if ours else "name")
    # A value that is tiny beside the others still has a visible bar.
    width = max(bar.spread.median * scale, 1.0)
    yield (
        f'<rect class="{"ours" if ours else "other"}" x="{LEFT}" y="{middle - _BAR / 2:.1f}"'
        f' width="{width:.1f}" height="{_BAR}"/>'
    )
    end = LEFT + max(width, bar.spread.largest * scale)
    if bar.spread.least < bar.spread.largest:
        least, largest = LEFT + bar.spread.least * scale, LEFT + bar.spread.largest * scale
        yield (
            f'<path class="spread" d="M{least:.1f} {middle:.1f}H{largest:.1f}'
            f"M{least:.1f} {middle - 4:.1f}v8M{largest:.1f} {middle - 4:.1f}v8"
            '"/>'
        )
    yield _text(end + 8, middle + 4, _value(bar.spread), "value")


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _style() -> str:
    dark = _colours(DARK)
    return (
        "text{font:12px system-ui,sans-serif}"
        ".title{font-size:16px;font-weight:600}.heading,.ours-name{font-weight:600}"
        ".name{text-anchor:end}.tick{text-anchor:middle;font-size:11px}.unit{font-size:11px}"
        f".spread{{fill:none;stroke-width:1.5}}{_colours(LIGHT)}"
        f"@media (prefers-color-scheme:dark){{{dark}}}"
    )


def _colours(theme: Mapping[str, str]) -> str:
    fills = "".join(f".{name}{{fill:{theme[name]}}}" for name in ("back", "ours", "other"))
    return (
        f"text{{fill:{theme['text']}}}.tick,.unit{{fill:{theme['quiet']}}}{fills}"
        f".grid{{stroke:{theme['grid']}}}.spread{{stroke:{theme['text']}}}"
    )
