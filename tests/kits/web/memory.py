"""The memory of an agent's process."""

from pathlib import Path

from tests.kits.agents.agent import Agent


class Memory:
    """Memory of the agent's own, compared with its value when this object was made.

    Pages of files do not count: how much of a library is resident depends on what else the machine
    reads.
    """

    def __init__(self, agent: Agent) -> None:
        self._folder = Path(f"/proc/{agent.process.pid}")
        (self._folder / "clear_refs").write_text("5")  # resets the peak
        self._files = self._read("RssFile")
        self._idle = self._read("VmRSS")

    def peak(self) -> int:
        """Return the growth of the peak since the start, in bytes."""
        return self._grown("VmHWM")

    def growth(self) -> int:
        """Return the growth since the start, in bytes."""
        return self._grown("VmRSS")

    def _grown(self, name: str) -> int:
        return self._read(name) - self._idle - (self._read("RssFile") - self._files)

    def _read(self, name: str) -> int:
        status = (self._folder / "status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith(name))
        return int(line.split()[1]) * 1024
