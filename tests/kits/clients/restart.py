"""Agents that keep their address over a restart."""

from pathlib import Path

from tests.kits.agents.agent import Agent


def agent_on(port: int, folder: Path, *flags: str) -> Agent:
    return Agent(folder, "--listen", f"127.0.0.1:{port}", *flags)
