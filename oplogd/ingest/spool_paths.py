"""The spool files of an agent: one for each worker, and those left by workers of an earlier run."""

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class SpoolPaths:
    """The files of one worker. ``path``: that of --spool, the file of worker 0.

    ``number``: of the worker, 0 to ``count`` - 1.
    """

    path: Path
    number: int = 0
    count: int = 1

    @property
    def own(self) -> Path:
        return self._of(self.number) if self.number else self.path

    def left(self) -> list[Path]:
        """Return the files that this worker inherits from an earlier run with more workers.

        The lowest number first. The workers have the files in turns.
        """
        pattern = re.compile(re.escape(f"{self.path.name}.worker-") + r"([1-9][0-9]{0,5})")
        try:
            found = [pattern.fullmatch(each.name) for each in self.path.parent.iterdir()]
        except OSError:  # SQLite reports a folder that cannot be read
            return []
        numbers = sorted(int(match[1]) for match in found if match)
        return [
            self._of(each)
            for each in numbers
            if each >= self.count and each % self.count == self.number
        ]

    def _of(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.worker-{number}")
