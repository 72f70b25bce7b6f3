"""Runs of ``oplogd`` that end by themselves, and unusable stores."""

import contextlib
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.processes import forked


def run(*flags: str | Path) -> subprocess.CompletedProcess[str]:
    """Run ``oplogd`` until it ends by itself."""
    command = [sys.executable, "-m", "oplogd", "--listen", "127.0.0.1:0", *map(str, flags)]
    return forked.run(command, capture_output=True, text=True, timeout=DEADLINE)


def refusal(*flags: str | Path, code: int = 1) -> str:
    """Run ``oplogd``, expect it to refuse, and return its sentence."""
    ended = run(*flags)
    assert (ended.returncode, ended.stdout) == (code, "")
    (sentence,) = ended.stderr.splitlines()
    assert sentence.startswith("oplogd: ")
    return sentence


def nothing(path: Path) -> None:
    path.parent.rmdir()


def a_folder(path: Path) -> None:
    path.mkdir()


def no_sqlite(path: Path) -> None:
    path.write_text("my shopping list\n" * 100)


def another_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE recipes (name TEXT)")


def a_newer_schema(path: Path) -> None:
    with Agent(path.parent):
        pass
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")


def has_ipv6() -> bool:
    """Return whether this machine has the IPv6 loopback address."""
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as sock, contextlib.suppress(OSError):
        sock.bind(("::1", 0))
        return True
    return False


def udp_is_free(host: str, port: int) -> bool:
    """Return whether no socket has the port at this host or at all hosts."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, contextlib.suppress(OSError):
        sock.bind((host, port))
        return True
    return False
