"""A clock for agents that a test can move, even while they run."""

import os
from pathlib import Path

_LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))


class MovingClock:
    """Sets the wall clock of an agent that is given ``environ`` ahead of the machine's.

    Durations stay true.
    """

    def __init__(self, folder: Path) -> None:
        assert _LIBRARIES, "the tests need Debian's libfaketime; tests/setup installs it"
        self._file = folder / "clock"
        self.set(0)
        self.environ = {
            "LD_PRELOAD": str(_LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def set(self, ahead: float) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(f"{ahead:+f}")
        os.replace(new, self._file)
