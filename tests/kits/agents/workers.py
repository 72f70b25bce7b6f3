"""The worker processes of an agent with ``--workers``."""

from pathlib import Path

from tests.kits.agents.agent import Agent
from tests.kits.clock.waiting import attempts
from tests.kits.processes.logged import DEADLINE


def worker_pids(agent: Agent) -> list[int]:
    """Return the process ids of the workers that run now, the oldest first."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, parent, *others = text.rpartition(")")[2].split()
        if int(parent) == agent.pid and state != "Z":
            found.append((int(others[17]), int(stat.parent.name)))  # by the time of the start
    return [pid for _, pid in sorted(found)]


def wait_for_workers(agent: Agent, count: int, *, without: int = 0) -> list[int]:
    """Wait until so many workers run, none of them ``without``. They may not serve yet."""
    for _ in attempts(DEADLINE):
        pids = worker_pids(agent)
        if len(pids) == count and without not in pids:
            return pids
    raise AssertionError(f"not {count} workers without {without}: {pids}\n{agent.text()}")


def lives(pid: int) -> bool:
    """Return whether a process runs. A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for_end(pids: list[int]) -> None:
    for _ in attempts(DEADLINE):
        if not any(map(lives, pids)):
            return
    raise AssertionError(f"some of {pids} have not ended")
