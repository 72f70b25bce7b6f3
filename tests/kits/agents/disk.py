"""An agent whose store lies on a small disk."""

from typing import Any

from tests.kits.agents.agent import Agent
from tests.kits.clock.waiting import attempts
from tests.kits.processes.disk import SmallDisk

# Deletions and programs that free space bring intake back within this time.
SECONDS = 30


class DiskAgent(Agent):
    """An agent with its store on the disk."""

    def __init__(self, disk: SmallDisk, *flags: str) -> None:
        self.program = [*disk.inside, "oplogd"]
        environ = {"OPLOGD_DISK_RESERVE": ""}  # the default
        super().__init__(disk.mount_point, *flags, environ=environ)

    def wait_disk(self, **wanted: Any) -> dict[str, Any]:
        """Wait until members of ``disk`` in /status have these values, and return it."""
        for _ in attempts(SECONDS):
            found: dict[str, Any] = self.status()["disk"]
            if all(found[name] == value for name, value in wanted.items()):
                return found
        raise AssertionError(f"wanted {wanted}, still {found}")
