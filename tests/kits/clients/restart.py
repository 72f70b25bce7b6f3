"""Agents that keep their address over a restart."""

import os
import random
import socket
from pathlib import Path

from tests.kits.agents.agent import Agent

# Each process of a run has ports of its own: a port is unused between two starts of an agent.
_PROCESSES = 64
_PROCESS = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _PROCESSES


def free_port() -> int:
    """Return a port that is free for TCP and UDP. The system gives it to no other program."""
    while True:
        port = random.randrange(20_032, 32_000, _PROCESSES) + _PROCESS
        with socket.socket() as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            try:
                tcp.bind(("127.0.0.1", port))
                udp.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def agent_on(port: int, folder: Path, *flags: str) -> Agent:
    return Agent(folder, "--listen", f"127.0.0.1:{port}", *flags)
