"""A measured figure: the values of its repeats, and those of other programs beside it."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Self

# Digits of shown and stored values.
SHOWN, STORED = 3, 4


class Spread(NamedTuple):
    """Median, least and largest of repeats."""

    median: float
    least: float
    largest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        median = shown(self.median)
        if self.least == self.largest:
            return median
        return f"{median} ({shown(self.least)} to {shown(self.largest)})"


@dataclass(frozen=True)
class Figure:
    """A figure of the oplog. Raises ValueError without values, and for infinite ones.

    ``ours``: a value for each repeat. ``beside``: those of other programs, by their names.
    """

    name: str
    unit: str
    ours: Sequence[float]
    beside: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, values in (("the oplog", self.ours), *self.beside.items()):
            if not values or not all(map(math.isfinite, values)):
                raise ValueError(f"{self.name}: no finite values of {name}: {list(values)}")

    @property
    def more_is_better(self) -> bool:
        return self.unit.endswith("/s")

    def ratio(self, other: str) -> Spread | None:
        """Return ours divided by the other, for each turn if both took turns.

        None if the other is zero.
        """
        theirs = self.beside[other]
        if 0 in theirs:
            return None
        if len(theirs) != len(self.ours):
            return Spread.of([statistics.median(self.ours) / statistics.median(theirs)])
        return Spread.of([mine / their for mine, their in zip(self.ours, theirs, strict=True)])

    def comparisons(self) -> list[str]:
        """Return a text for each other program, with the ratio to it."""
        found = []
        for other, values in self.beside.items():
            ratio = self.ratio(other)
            times = "beside" if ratio is None else f"{ratio} of"
            found.append(f"{times} {other}: {Spread.of(values)}")
        return found

    def __str__(self) -> str:
        ours = f"{self.name}: {Spread.of(self.ours)} {self.unit}"
        return "; ".join([ours, *self.comparisons()])

    def stored(self) -> dict[str, Any]:
        """Return the figure for JSON."""
        beside = {name: _rounded(values) for name, values in self.beside.items()}
        return asdict(self) | {"ours": _rounded(self.ours), "beside": beside}


def merged(first: Sequence[Figure], second: Sequence[Figure]) -> list[Figure]:
    """Return the figures of two runs of a benchmark. A figure of both has the values of both."""
    found = {figure.name: figure for figure in first}
    for figure in second:
        if known := found.get(figure.name):
            beside = {
                name: [*known.beside.get(name, ()), *figure.beside.get(name, ())]
                for name in {**known.beside, **figure.beside}
            }
            figure = Figure(figure.name, figure.unit, [*known.ours, *figure.ours], beside)
        found[figure.name] = figure
    return list(found.values())


def shown(value: float) -> str:
    """Return a value with three digits, such as ``0.0312``, ``51.3`` and ``12,300``."""
    rounded = _round(value, SHOWN)
    if rounded == 0:
        return "0"
    decimals = max(0, SHOWN - 1 - math.floor(math.log10(abs(rounded))))
    text = f"{rounded:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if float(rounded).is_integer() and decimals else text


def _rounded(values: Sequence[float]) -> list[float]:
    return [_round(value, STORED) for value in values]


def _round(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")
