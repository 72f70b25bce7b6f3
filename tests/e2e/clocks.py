"""Clocks for agents that a test can move, even while they run."""

import os
from datetime import datetime, timedelta
from pathlib import Path

from tests.kits.agents.agent import Agent
from tests.kits.servers.stores import StorePlace

_LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))


class MovingClock:
    """Sets the wall clock of an agent that is given ``environ`` ahead of the machine's.

    Durations stay true.
    """

    def __init__(self, folder: Path) -> None:
        assert _LIBRARIES, "the tests need Debian's libfaketime; tests/setup installs it"
        self._file = folder / "clock"
        self._made = datetime.now()
        self.set(0)
        self.environ = {
            "LD_PRELOAD": str(_LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def set(self, ahead: float) -> None:
        self._write(f"{ahead:+f}")

    def stop(self, seconds: int) -> None:
        """Stop the clock this long after the making of this one, until ``set``."""
        at = self._made + timedelta(seconds=seconds)
        self._write(at.strftime("%Y-%m-%d %H:%M:%S"))

    def _write(self, text: str) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(text)
        os.replace(new, self._file)


class StoreClock:
    """Moves the clock that dates messages: the agents' on SQLite, the server's on MongoDB."""

    def __init__(self, place: StorePlace, folder: Path) -> None:
        self._place = place
        self._folder = folder
        self._clock = MovingClock(folder)
        self._environ = {"OPLOG_TEST_CLOCK": self._clock.environ["FAKETIME_TIMESTAMP_FILE"]}
        if place.kind is not None:
            self._environ["OPLOG_TEST_CLOCK_OF_SERVER"] = "1"
        self.set = self._clock.set
        self.stop = self._clock.stop

    def agent(self, *flags: str) -> Agent:
        return self._place.agent(self._folder, *flags, make=_MovedAgent, environ=self._environ)


class _MovedAgent(Agent):
    program = ("-m", "tests.e2e.moved_agent")
