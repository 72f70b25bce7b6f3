"""A file system of a few KiB in a mount namespace of its own, which ends with its holder."""

import asyncio
import os
from pathlib import Path
from typing import Self

_HOLD = 'mount -t tmpfs -o size=16k none "$0" && echo mounted && exec sleep infinity'


class Disk:
    """``prefix`` runs a command where ``mount_point`` is the small file system; ``folder`` is the
    same seen from here.
    """

    def __init__(self, mount_point: Path) -> None:
        self._mount_point = mount_point
        self._holder: asyncio.subprocess.Process | None = None
        self.prefix: list[str] = []
        self.folder = Path()

    async def __aenter__(self) -> Self:
        # Without root a namespace of users comes first: in it one may mount.
        user = ["--user", "--map-root-user"] if os.geteuid() else []
        self._holder = await asyncio.create_subprocess_exec(
            "unshare", *user, "--mount", "sh", "-c", _HOLD, str(self._mount_point),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert self._holder.stdout
        assert self._holder.stderr
        if await self._holder.stdout.readline() != b"mounted\n":
            raise AssertionError(
                f"no small disk can be made here: {(await self._holder.stderr.read()).decode()}"
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
