"""A small file system in a mount namespace of its own, until its process ends."""

import errno
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

_HOLD = 'mount -t tmpfs -o "$1" none "$0" && echo mounted && exec sleep infinity'
_BLOCK = 1 << 12


class SmallDisk:
    """``prefix`` runs a command in the namespace, ``inside`` a module of Python that may be forked.

    ``folder`` is the mount point, seen from here.

    ``options``: of a tmpfs, such as ``size=24m``.
    """

    def __init__(self, mount_point: Path, options: str) -> None:
        self.mount_point = mount_point
        self._options = options
        self.prefix: list[str] = []
        self.inside: list[str] = []
        self.folder = Path()

    def __enter__(self) -> Self:
        # Without root only a namespace of users allows the mount.
        user = ["--user", "--map-root-user"] if os.geteuid() else []
        self.mount_point.mkdir(exist_ok=True)
        self._holder = subprocess.Popen(
            ["unshare", *user, "--mount", "sh", "-c", _HOLD, str(self.mount_point), self._options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._holder.stdout
        assert self._holder.stderr
        if self._holder.stdout.readline() != b"mounted\n":
            raise AssertionError(
                f"cannot mount a small file system: {self._holder.stderr.read().decode()}"
            )
        enter = ["--user", "--preserve-credentials"] if user else []
        pid, module = str(self._holder.pid), "tests.kits.processes.inside"
        self.inside = ["-m", module, pid, str(self.mount_point)]
        target = ["--target", pid]
        self.prefix = ["nsenter", *target, *enter, "--mount", f"--wdns={self.mount_point}"]
        self.folder = Path(f"/proc/{self._holder.pid}/root{self.mount_point}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._holder.kill()
        self._holder.communicate()

    @property
    def free(self) -> int:
        """Free space in bytes."""
        return shutil.disk_usage(self.folder).free

    def fill(self, leave: int = 0) -> Path:
        """Let another program fill the disk up to ``leave`` bytes. Return its file."""
        path = self.folder / "filler"
        with path.open("ab", buffering=0) as file:
            try:
                while self.free > leave:
                    file.write(bytes(min(_BLOCK, self.free - leave)))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        return path
