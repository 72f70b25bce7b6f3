"""The wall clock of a whole process, moved with libfaketime.

That is slow: ``MovedClock`` moves the clock that the agent hands to its parts. This one is for
tests that the agent asks no other clock.
"""

from pathlib import Path

_LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))


class FakeTime:
    """Sets the wall clock of an agent that is given ``environ`` ahead of the machine's.

    Durations stay true.
    """

    def __init__(self, folder: Path, ahead: float = 0) -> None:
        assert _LIBRARIES, "the tests need Debian's libfaketime; tests/setup installs it"
        self._file = file = folder / "faketime"
        self.set(ahead)
        self.environ = {
            "LD_PRELOAD": str(_LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def set(self, ahead: float) -> None:
        """Set the time of day this many seconds ahead of the machine's."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{ahead:+f}")
        new.replace(self._file)
