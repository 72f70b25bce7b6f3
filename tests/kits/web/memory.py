"""The memory of an agent's process."""

from pathlib import Path

from tests.kits.agents.agent import Agent


class Memory:
    """Resident memory of the agent, compared with its value when this object was made."""

    def __init__(self, agent: Agent) -> None:
        self._folder = Path(f"/proc/{agent.process.pid}")
        self._idle = self._read("VmRSS")

    def peak(self) -> int:
        """Return the growth of the peak since the start, in bytes."""
        return self._read("VmHWM") - self._idle

    def growth(self) -> int:
        """Return the growth since the start, in bytes."""
        return self._read("VmRSS") - self._idle

    def _read(self, name: str) -> int:
        if name == "VmRSS":
            (self._folder / "clear_refs").write_text("5")  # resets the peak
        status = (self._folder / "status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith(name))
        return int(line.split()[1]) * 1024
