"""The worker processes of an agent with ``--workers``."""

from tests.kits.agents.agent import Agent
from tests.kits.clock.waiting import attempts
from tests.kits.processes.children import child_pids, lives
from tests.kits.processes.logged import DEADLINE


def worker_pids(agent: Agent) -> list[int]:
    """Return the process ids of the workers that run now, the oldest first."""
    return child_pids(agent.pid)


def wait_for_workers(agent: Agent, count: int, *, without: int = 0) -> list[int]:
    """Wait until so many workers run, none of them ``without``. They may not serve yet."""
    for _ in attempts(DEADLINE):
        pids = worker_pids(agent)
        if len(pids) == count and without not in pids:
            return pids
    raise AssertionError(f"not {count} workers without {without}: {pids}\n{agent.text()}")


def wait_for_end(pids: list[int]) -> None:
    for _ in attempts(DEADLINE):
        if not any(map(lives, pids)):
            return
    raise AssertionError(f"some of {pids} have not ended")
