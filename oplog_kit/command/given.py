"""What a user gave to a command."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class Given:
    """Settings given by a user: `values` by field, `sources` (flag or variable) by flag."""

    values: dict[str, Any]
    sources: dict[str, str]
    arguments: tuple[str, ...]

    def refuse_together(self, one: Iterable[str], other: Iterable[str]) -> None:
        """Raise click.UsageError if flags of both groups are given."""
        first = [self.sources[name] for name in one if name in self.sources]
        second = [self.sources[name] for name in other if name in self.sources]
        if first and second:
            raise click.UsageError(f"{first[0]} and {second[0]} exclude each other")

    def require(self, name: str, *needed: str) -> None:
        """Raise click.UsageError if `name` is given without any flag of `needed`."""
        if name in self.sources and not any(other in self.sources for other in needed):
            raise click.UsageError(f"{self.sources[name]} needs {needed[0]} as well")
