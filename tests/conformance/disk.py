"""A file system of a few KiB in its own mount namespace, until its process ends."""

import asyncio
import os
from pathlib import Path
from typing import Self

_HOLD = 'mount -t tmpfs -o size=16k none "$0" && echo mounted && exec sleep infinity'


class Disk:
    """``prefix`` runs a command in the namespace. ``folder`` is the mount point, seen from here."""

    def __init__(self, mount_point: Path) -> None:
        self._mount_point = mount_point
        self._holder: asyncio.subprocess.Process | None = None
        self.prefix: list[str] = []
        self.folder = Path()

    async def __aenter__(self) -> Self:
        # Without root only a namespace of users allows the mount.
        user = ["--user", "--map-root-user"] if os.geteuid() else []
        self._holder = await asyncio.create_subprocess_exec(
            "unshare", *user, "--mount", "sh", "-c", _HOLD, str(self._mount_point),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert self._holder.stdout
        assert self._holder.stderr
        if await self._holder.stdout.readline() != b"mounted\n":
            raise AssertionError(
                f"cannot mount a small file system: {(await self._holder.stderr.read()).decode()}"
            )
        pid = self._holder.pid
        enter = ["--user", "--preserve-credentials"] if user else []
        self.prefix = [
            "nsenter",
            "--target",
            str(pid),
            *enter,
            "--mount",
            f"--wdns={self._mount_point}",
        ]
        self.folder = Path(f"/proc/{pid}/root{self._mount_point}")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._holder is not None:
            self._holder.kill()
            await self._holder.communicate()
