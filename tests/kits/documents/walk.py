"""A reader of a how-to with terminals: runs its commands and compares their output."""

import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from tests.kits.agents.agent import DEADLINE
from tests.kits.contract.wire import wait_until
from tests.kits.documents.staying import shape
from tests.kits.processes.commands import Commands
from tests.kits.servers.ports import free_port


class Walk:
    """``addresses``: what the page has -> what it is here, besides port 8000."""

    # Commands of the pages -> arguments of Python: they need not be installed.
    commands: ClassVar[Mapping[str, str]]
    # Commands that change nothing: they are repeated until the output is there.
    looks: ClassVar[re.Pattern[str]]
    # Commands that may fail until then.
    may_fail: ClassVar[re.Pattern[str]]

    def __init__(self, folder: Path, addresses: Mapping[str, str], **environ: str) -> None:
        self.folder = folder
        self.staying: list[subprocess.Popen[bytes]] = []
        self._port = free_port()
        self.addresses = {
            **addresses,
            "localhost:8000": f"127.0.0.1:{self._port}",
            "--port 8000": f"--port {self._port}",
        }
        self._code = ""
        self.printed = ""
        self.stack = ExitStack()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - the stack closes it
        self.stack.callback(self._errors.close)
        self.stack.enter_context(Commands(folder / "bin", self.commands))
        self.environ = {
            **os.environ,
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            **environ,
        }

    def here(self, text: str) -> str:
        """Return the text with the real addresses."""
        for there, address in self.addresses.items():
            text = text.replace(there, address)
        return text

    def run(self, code: str) -> str:
        """Run a command in the folder of the reader, and return its output."""
        self._code = code
        done = subprocess.run(
            ["bash", "-euc", code], cwd=self.folder, env=self.environ,
            capture_output=True, text=True, timeout=DEADLINE, check=False,
        )  # fmt: skip
        self.printed = done.stdout
        is_fine = done.returncode == 0 or self.may_fail.match(code)
        assert is_fine, f"{code}\n{done.stdout}{done.stderr}"
        return done.stdout

    def compare(self, wanted: str) -> None:
        """Compare the output of the last command."""
        deadline = time.monotonic() + DEADLINE
        while self.shape(self.printed) != self.shape(wanted):
            if not self.looks.match(self._code) or time.monotonic() > deadline:
                raise AssertionError(f"{self._code}\nprints\n{self.printed}\n{self.errors}")
            time.sleep(0.05)
            self.run(self._code)

    def shape(self, text: str) -> list[str]:
        return shape(text)

    def stay(self, code: str) -> "subprocess.Popen[bytes]":
        """Start a command that runs until it is stopped."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {code}"], cwd=self.folder, env=self.environ,
            stdout=subprocess.DEVNULL, stderr=self._errors,
            # A shell starts background processes with SIGINT ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        self.staying.append(process)
        if code.startswith("uvicorn"):
            assert wait_until(self._is_served), self.errors
        return process

    @property
    def errors(self) -> str:
        """Return the standard error of the commands that stay."""
        return os.pread(self._errors.fileno(), 1 << 20, 0).decode()

    def _is_served(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._port)):
            return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self.staying:
            process.kill()
            process.wait(DEADLINE)
        self.stack.close()
