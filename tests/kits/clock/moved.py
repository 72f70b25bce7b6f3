"""Time of agents in processes of their own. The test moves it through a file that they map."""

import mmap
import time
from pathlib import Path

from oplogd.clock import now_ms
from tests.kits.agents.agent import Agent
from tests.kits.servers.stores import StorePlace

# Variables of ``agent.py``: the file, and whether the clock of MongoDB's server moves, too.
FILE = "OPLOG_TEST_CLOCK"
OF_SERVER = "OPLOG_TEST_CLOCK_OF_SERVER"

# Places of the file's numbers, 8 bytes each. All are in milliseconds.
STANDS_AT, STEPPED, PASSED, HELD_AT = range(4)


class MovedAgent(Agent):
    """An agent whose clock is a ``MovedClock``. It needs the clock's ``environ``."""

    program = ("-m", "tests.kits.clock.agent")


class MovedClock:
    """The clock of all agents that get ``environ``. At first it is the machine's."""

    def __init__(self, folder: Path, *, is_of_server: bool = False) -> None:
        """``is_of_server``: these agents see the clock of MongoDB's server moved, too."""
        path = folder / "clock"
        path.write_bytes(bytes(8 * 4))
        with path.open("r+b") as file:
            self._numbers = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
        self._made_ms = now_ms()
        self.environ = {FILE: str(path), **({OF_SERVER: "1"} if is_of_server else {})}

    def set(self, ahead: float) -> None:
        """Set the time of day this many seconds ahead of the machine's. Durations stay true.

        In a running agent that is a step, which it does not follow for a minute. Use ``move`` to
        let time pass.
        """
        self._numbers[STANDS_AT] = 0
        self._numbers[STEPPED] = round(ahead * 1000) - self._numbers[PASSED]

    def stop(self, seconds: float) -> None:
        """Stop the time of day this long after the making of this clock, until ``set``.

        The boot clock stands, too: so a later call lets time pass.
        """
        self._numbers[STANDS_AT] = self._made_ms + round(seconds * 1000)

    def move(self, seconds: float) -> None:
        """Let this time pass: by the time of day and by monotonic clocks. Sleepers wake up.

        Work that is under way seems to take so long.
        """
        self._numbers[PASSED] += round(seconds * 1000)

    def hold(self) -> None:
        """Let time pass by monotonic clocks only in ``move``. Sleepers sleep until then."""
        self._numbers[HELD_AT] = round(time.monotonic() * 1000)


class StoreClock(MovedClock):
    """Moves the clock that dates messages: the agents' on SQLite, the server's on MongoDB."""

    def __init__(self, place: StorePlace, folder: Path) -> None:
        super().__init__(folder, is_of_server=place.kind is not None)
        self._place = place
        self._folder = folder

    def agent(self, *flags: str) -> Agent:
        return self._place.agent(self._folder, *flags, make=MovedAgent, environ=self.environ)
