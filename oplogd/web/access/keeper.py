"""Keeps the present credentials of an agent, the same in all its workers."""

import asyncio
import hmac
import logging
from collections.abc import Callable

import msgspec

from oplogd.clock import Clock
from oplogd.shared.journal import Copy
from oplogd.web.access.checks import Checks
from oplogd.web.access.content import Content
from oplogd.web.access.credentials import Credentials
from oplogd.web.access.sources import Sources
from oplogd.workers.workers import Worker

# Between two looks at the files.
LOOK_SECONDS = 1.0

logger = logging.getLogger("oplogd.password")


class Keeper:
    """The present credentials. One worker looks at the files, and all have its content at once."""

    def __init__(
        self,
        sources: Sources,
        clock: Clock,
        worker: Worker | None = None,
        secret: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        """``secret``: returns that of the store, None while it is not known."""
        worker = worker or Worker.alone()
        self.checks = Checks()
        self._sources = sources
        self._clock = clock
        self._secret = secret
        self._number = worker.number
        self._role = worker.workers.passwords_role
        self._key = worker.workers.secret_of("passwords")
        self._credentials: Credentials | None = None
        self._content = b""
        journal = worker.workers.passwords
        self._copy = None if journal is None else Copy(journal, self)
        if self._copy is None:
            self.load(_encode(sources.content()))
            return
        with self._copy.turn():
            if not self._content:
                self._copy.change(_encode(sources.content()))

    @property
    def credentials(self) -> Credentials:
        """The present credentials: those with which any worker has answered a request."""
        if self._copy is not None and not self._copy.is_current:
            with self._copy.turn():
                pass
        assert self._credentials is not None
        return self._credentials

    def digest(self, password: bytes, name: str = "") -> bytes:
        """Return a digest that stands for a password, the same in all workers of this run."""
        return hmac.digest(self._key, name.encode() + b"\0" + password, "sha256")

    async def run(self, changed: Callable[[], None]) -> None:
        """Look at the files regularly. Call ``changed`` after each change. Returns never."""
        known = self.credentials
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            if self._role is None or self._role.take(self._number):
                await self._look()
            if self.credentials is not known:
                known = self.credentials
                changed()

    async def _look(self) -> None:
        before = self.credentials.content
        found = await asyncio.to_thread(self._looked, before)
        if found is None:
            return
        content, raw = found
        for error in content.errors:
            if error not in before.errors:
                logger.error("%s", error)
        if self._copy is None:
            self.load(raw)
        else:
            with self._copy.turn():
                self._copy.change(raw)
        if not content.is_as(before):
            logger.info("passwords and rights have changed")

    def _looked(self, present: Content) -> tuple[Content, bytes] | None:
        content = self._sources.look(present)
        return None if content is None else (content, _encode(content))

    # As a state of the journal: its content.

    def load(self, snapshot: bytes) -> None:
        """Replace the content."""
        self._content = snapshot
        content = msgspec.msgpack.decode(snapshot, type=Content)
        self._credentials = Credentials(content, self.digest, self._secret, self._credentials)

    def apply(self, change: bytes) -> None:
        """Replace the content."""
        self.load(change)

    def dump(self) -> bytes:
        """Return the content."""
        return self._content

    def shrink(self) -> None:
        """Do nothing: the limits of the files keep it smaller than a snapshot."""


def _encode(content: Content) -> bytes:
    return msgspec.msgpack.encode(content)
