"""The task of each agent for folding, trimming and maintenance, while the agent holds the lease."""

import asyncio
import logging
import random
import time

from oplogd.errors import StoreError, StoreUnavailableError
from oplogd.model.event_id import Mark
from oplogd.store.mongo.link.errors import translating
from oplogd.store.mongo.link.layout import mark_of
from oplogd.store.mongo.link.lease import FoldLease
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.notifier import Notifier, wait
from oplogd.store.mongo.log.log import Log
from oplogd.store.mongo.log.tail import Tail
from oplogd.store.mongo.log.trim import Trimmer
from oplogd.store.mongo.setup.setup import Setup
from oplogd.store.mongo.states.fold import fold, forget_writers, raise_checkpoint

BATCH = 1_000
_LEAST_BATCH = 50
_IDLE_SECONDS = 0.1
_FOLLOWED_SECONDS = 1.0
_RETRY_SECONDS = 0.5

# The collections are checked for at most a twentieth of the time.
_KEEP_SHARE = 20

logger = logging.getLogger("oplogd.store")


class Projection:
    """``ready``: the log is set up and can be read and written. ``trouble``: the last error."""

    def __init__(self, link: Link, log: Log, setup: Setup, lease: FoldLease, tail: Tail) -> None:
        self._link = link
        self._log = log
        self._setup = setup
        self._lease = lease
        self._tail = tail
        self._keep_seconds = link.timing.keep_seconds
        self.trimmer = Trimmer(link, log, link.timing.trim_seconds)
        self.ready = False
        self.trouble: StoreError | None = None
        # Notifies of changes of ``ready`` and ``trouble``, and of entries folded here.
        self.changed = Notifier()
        self._task: asyncio.Task[None] | None = None
        self._is_greeted = False
        self._keep_next_at = 0.0
        # The checkpoint raised by this agent as holder of the lease. None: not the holder, or the
        # collections must be checked before it folds.
        self._checkpoint: Mark | None = None
        # First offset of the checkpoint's epoch.
        self._first = 0
        self._batch = _LEAST_BATCH

    @property
    def is_dead(self) -> bool:
        """Whether the task ended by itself, by an unexpected error."""
        return self._task is not None and self._task.done()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="projection")
        self._task.add_done_callback(_log_death)

    async def stop(self) -> None:
        """Stop folding. A held lease stays with this agent until it runs out."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                with translating(self._link.hosts):
                    await self._take_turn()
                self._report(None)
                continue
            except StoreError as error:
                self._report(error)
            except Exception as error:
                # A document may hold anything. A person corrects it in the database, so the agent
                # tries again.
                trouble = StoreUnavailableError(
                    f"MongoDB at {self._link.hosts}: its collections hold something that is not"
                    f" understood ({type(error).__name__}: {str(error)[:200]})"
                )
                if str(trouble) != str(self.trouble):
                    logger.error("%s", trouble, exc_info=error)
                self._report(trouble)
            self._lease.lose()
            self._checkpoint = None
            await self._link.clock.sleep(_RETRY_SECONDS * random.uniform(0.5, 1))

    async def _take_turn(self) -> None:
        """Fold one batch as holder of the lease, or watch as any other agent."""
        if not self._is_greeted:
            await self._link.greet()
            self._is_greeted = True
        if not await self._lease.hold():
            await self._watch()
            return
        await self._keep()
        appended = self._log.known.appended.listen()
        if not await self._fold_batch() and self._checkpoint:
            # A consumer's tail notifies of appends by other agents, too.
            is_followed = self._tail.is_followed(_FOLLOWED_SECONDS)
            idle_seconds = self._keep_seconds if is_followed else _IDLE_SECONDS
            await wait(appended, min(idle_seconds, self._lease.seconds / 5))

    async def _watch(self) -> None:
        """Check the collections from time to time. Change nothing."""
        self._checkpoint = None
        if not self.ready:
            self.ready = await self._setup.check()
            self.changed.notify()
        elif (began := self._link.clock.monotonic()) >= self._keep_next_at:
            await self._setup.check()
            await self._setup.look_for_first_server()
            self._keep_again(self._link.clock.monotonic() - began)
        await self._link.clock.sleep(min(self._lease.seconds / 5, 0.5 if self.ready else 0.05))

    async def _keep(self) -> None:
        """Maintain the collections, from time to time and before the first fold as holder."""
        began = self._link.clock.monotonic()
        if self._checkpoint is not None and began < self._keep_next_at:
            return
        was_whole = await self._setup.keep(self._lease.hold)
        await self._setup.look_for_first_server()
        # The time of a repair, perhaps an hour, says nothing about the next check.
        took = self._link.clock.monotonic() - began if was_whole else 0.0
        if self._checkpoint is None:
            await forget_writers(self._link)
            logger.info("this agent folds the log into the states now")
        row = await self._log.row()
        self._checkpoint, self._first = row.folded, row.first
        self._keep_again(took)
        if not self.ready:
            self.ready = True
            self.changed.notify()
        if not self._log.known.capped_bytes:
            await self.trimmer.trim(row.folded.offset)

    def _keep_again(self, took: float) -> None:
        """Schedule the next check. A slow one is not repeated soon: it may slow the server down."""
        pause = max(self._keep_seconds, _KEEP_SHARE * took)
        self._keep_next_at = self._link.clock.monotonic() + pause

    async def _fold_batch(self) -> bool:
        """Fold some entries, at most ``BATCH``. Return whether there were any."""
        checkpoint = self._checkpoint
        assert checkpoint is not None
        async with self._link.reading() as session:
            documents = await self._log.documents(checkpoint.offset, self._batch, session)
        if not documents:
            return False
        start = checkpoint.offset + 1
        if documents[0]["n"] != start:
            self._setup.warn_lost(documents[0]["n"] - start)
        began = time.monotonic()
        if not await fold(self._link, documents, self._lease.hold):
            self._checkpoint = None
            return False
        # Long batches delay renewals of the lease.
        is_slow = time.monotonic() - began > self._lease.seconds / 4
        wanted = self._batch // 2 if is_slow else 2 * self._batch
        self._batch = min(max(wanted, _LEAST_BATCH), BATCH)
        if not self._lease.held or not await raise_checkpoint(
            self._link, documents, self._first, checkpoint.offset
        ):
            # Another agent folds, or the log was set aside or restored: check first.
            self._checkpoint = None
            return False
        self._checkpoint = mark_of(documents[-1])
        self._log.known.folded = self._checkpoint.offset
        self.changed.notify()
        if not self._log.known.capped_bytes and self.trimmer.is_due(self._checkpoint.offset):
            await self.trimmer.trim(self._checkpoint.offset)
        return True

    def _report(self, trouble: StoreError | None) -> None:
        if trouble is not None and (self.trouble is None or str(trouble) != str(self.trouble)):
            logger.debug("the fold waits: %s", trouble)
        if trouble is not None and not isinstance(trouble, StoreUnavailableError):
            self.ready = False
        if trouble is not self.trouble:
            self.trouble = trouble
            self.changed.notify()


def _log_death(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.critical("the fold has died: %r", error, exc_info=error)
