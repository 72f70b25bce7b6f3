"""Access for tests without an agent."""

from typing import Any

from starlette.requests import HTTPConnection

from oplog_kit.command.convert import Secret
from oplogd.clock import SYSTEM, Clock
from oplogd.config.settings import Settings
from oplogd.web.access.caller import Caller
from oplogd.web.access.keeper import Keeper
from oplogd.web.access.rights import Right
from oplogd.web.access.sources import Sources
from oplogd.workers.workers import Worker


def keeper_of(password: str | None, clock: Clock = SYSTEM, worker: Worker | None = None) -> Keeper:
    """Return a keeper with one password for reading and writing. None: access is open."""
    passwords = (Secret(password),) if password else ()
    return Keeper(Sources(Settings(password=passwords, ingest_password=passwords)), clock, worker)


class Granting:
    """Takes every client for one with this right."""

    def __init__(self, right: Right, name: str = "user:ada") -> None:
        self.given = Caller(name, right, name)

    @classmethod
    def both(cls, right: Right) -> tuple[Any, Any]:
        """Return what stands for the authenticators of reading and of writing."""
        return cls(right), cls(right)

    async def caller(self, _: HTTPConnection) -> Caller:
        return self.given

    def require_still(self, _: Caller) -> None:
        """Find the credential as it was."""
