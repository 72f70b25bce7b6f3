"""Write the generated part of ``docs/internals/benchmarks.md``, and its plots."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.kits.figures.catalog import BENCHMARKS, PLOTS
from tests.kits.figures.figure import Figure, Spread
from tests.kits.figures.plot import svg
from tests.kits.figures.results import STORE, Conditions, Result, Results
from tests.kits.paths import ROOT

PAGE = ROOT / "docs/internals/benchmarks.md"
PLACE = STORE.parent
BEGIN = "<!-- figures: `make bench` writes this part. Do not edit it. -->"
END = "<!-- /figures -->"
_SPECIAL = re.compile(r"([\\|*_`\[\]])")


class MarkError(Exception):
    """The page lacks the marks of the generated part."""


def files(results: Results, page: str) -> dict[Path, str]:
    """Return the page and the plots as they must be. ``page``: the present text."""
    plots = {PLACE / f"{name}.svg": text for name, text in plots_of(results).items()}
    return {PAGE: with_part(page, part(results)), **plots}


def write(results: Results) -> None:
    """Write the page and the plots, and remove plots without figures."""
    current = files(results, PAGE.read_text(encoding="utf-8"))
    for path in PLACE.glob("*.svg"):
        if path not in current:
            path.unlink()
    for path, text in current.items():
        path.write_text(text, encoding="utf-8")


def with_part(page: str, text: str) -> str:
    """Return the page with a new generated part. Raises MarkError."""
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise MarkError(f"{PAGE.name} needs these lines once each:\n{BEGIN}\n{END}")
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise MarkError(f"{PAGE.name} needs {END} below {BEGIN}")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def plots_of(results: Results) -> dict[str, str]:
    """Return the plots that have figures, by the names of their files."""
    found = {}
    for name, plot in PLOTS.items():
        result = results.get(plot.benchmark)
        if result is None:
            continue
        if figures := [each for each in result.figures if each.unit in plot.units]:
            subtitle = f"{result.conditions.moment}, {result.conditions.cpu}"
            found[name] = svg(plot.title, subtitle, figures)
    return found


def part(results: Results) -> str:
    """Return the generated part: the plots, the table, and the runs."""
    known = {name: results[name] for name in BENCHMARKS if name in results}
    if not known:
        return "Nothing is measured yet."
    numbers = {name: number for number, name in enumerate(known, start=1)}
    blocks = [
        f"![{PLOTS[name].title}: the same figures as in the table]({PLACE.name}/{name}.svg)"
        for name in plots_of(known)
    ]
    blocks += ["\n".join(_table(known, numbers)), "\n".join(_runs(known, numbers))]
    blocks += [f"{name}: {machine}." for machine, name in _machines(known).items()]
    if missing := [f"`{name}`" for name in BENCHMARKS if name not in results]:
        blocks.append(f"Not measured by `make bench` yet: {', '.join(missing)}.")
    return "\n\n".join(blocks)


def _table(known: Results, numbers: Mapping[str, int]) -> Iterator[str]:
    machines = _machines(known)
    yield "| measured | oplog | beside | repeats | run |"
    yield "|---|---|---|---|---|"
    for name, result in known.items():
        told = [f"failed on {result.failed}"] if result.failed else []
        if result.figures:
            told.append(f"{result.conditions.moment}, on {machines[_machine(result.conditions)]}")
        line = "<br>".join(map(cell, told))
        yield f"| **{BENCHMARKS[name].title}** | {line} | | | {numbers[name]} |"
        yield from map(_row, result.figures)


def _row(figure: Figure) -> str:
    ours = f"{Spread.of(figure.ours)} {figure.unit}"
    beside = "<br>".join(map(cell, figure.comparisons()))
    return f"| {cell(figure.name)} | {cell(ours)} | {beside} | {len(figure.ours)} | |"


def _runs(known: Results, numbers: Mapping[str, int]) -> Iterator[str]:
    yield "| run | command | runs | seconds of one |"
    yield "|---|---|---|---|"
    for name, result in known.items():
        seconds = f"{result.seconds:.0f}" if result.figures else ""
        yield f"| {numbers[name]} | `{BENCHMARKS[name].command}` | {result.runs} | {seconds} |"


def _machines(known: Mapping[str, Result]) -> dict[str, str]:
    """Return a short name for each machine."""
    found = dict.fromkeys(_machine(result.conditions) for result in known.values())
    return {machine: f"M{number}" for number, machine in enumerate(found, start=1)}


def _machine(conditions: Conditions) -> str:
    return cell(conditions.machine)


def cell(text: str) -> str:
    """Return plain text for the cell of a table."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return _SPECIAL.sub(r"\\\1", text)
