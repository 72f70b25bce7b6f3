"""The waiting messages of one topic: the next request, and the effect of its answer. No I/O.

One request at a time is in flight for a topic, so messages are stored in the order of the calls.
"""

import logging
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from oplogc.http.backoff import Backoff
from oplogc.topics.messages.batch import BATCH_BYTES
from oplogc.topics.publish.publication import Publication, fail, is_wanted
from oplogc.wire.errors import BadRequestError, TopicNotFound, UnavailableError

_NAMED = re.compile(r"messages\[([0-9]{1,9})\]")
logger = logging.getLogger("oplogc")


@dataclass
class PublishCounters:
    """Numbers of messages. ``published = delivered + rejected + dropped + buffered``."""

    published: int = 0
    """Given to ``publish``, and well-formed."""
    delivered: int = 0
    """Durable at the agent."""
    rejected: int = 0
    """Refused by the agent."""
    dropped: int = 0
    """No room in the buffer, cancelled, or not confirmed in time."""
    retried: int = 0
    """Requests, not messages: repeated after no answer or one with a wait."""
    buffered: int = 0
    """Waiting, those in flight included."""


class PublishQueue:
    """The publications of one topic. ``settled`` takes each at its end, and its counter."""

    def __init__(
        self,
        topic: str,
        batch_size: int,
        backoff: Backoff,
        settled: Callable[[Publication, str], None],
    ) -> None:
        self._topic = topic
        self._batch_size = batch_size
        self._max_publications: int | None = None
        """Of the next batch, after the agent refused a larger one."""
        self._backoff = backoff
        self._settled = settled
        self._waiting: deque[Publication] = deque()
        self._batch: list[Publication] = []
        self.trouble = ""
        """Why the batch in flight is not delivered yet."""
        self.refusal: Exception | None = None
        """The refusal for which messages without ``until`` wait."""
        self._logged_rejection = ""

    def __len__(self) -> int:
        """Return the number of waiting publications, those in flight included."""
        return len(self._batch) + len(self._waiting)

    def add(self, publication: Publication) -> None:
        self._waiting.append(publication)

    def batch(self) -> list[bytes]:
        """Return the messages of the next request: the same until it is settled. Empty: none."""
        if not self._batch:
            count = size = 0
            while self._waiting and len(self._batch) != self._max_publications:
                following = self._waiting[0]
                count += len(following.messages)
                size += following.size
                if self._batch and (count > self._batch_size or size > BATCH_BYTES):
                    break
                self._waiting.popleft()
                if is_wanted(following.future):
                    self._batch.append(following)
                else:
                    self._settled(following, "dropped")
                    count, size = count - len(following.messages), size - following.size
        return [raw for each in self._batch for raw in each.messages]

    def delivered(self) -> None:
        batch, self._batch = self._batch, []
        for each in batch:
            self._settled(each, "delivered")
            each.future.set_result(None)
        if self._max_publications is not None:
            self._max_publications *= 2
            if self._max_publications >= self._batch_size:
                self._max_publications = None
        self._logged_rejection = ""
        if self.trouble:
            logger.info("messages for %s are delivered again", self._topic)
        self._recovered()

    def refused(self, error: Exception) -> float:
        """Apply a refusal, or a token function's error. Return seconds until the next request."""
        if isinstance(error, BadRequestError):
            return self._bad(error)
        keep = not isinstance(error, TopicNotFound)
        batch, self._batch = self._batch, []
        for each in batch:
            if keep and each.until is None:
                self._batch.append(each)
            else:
                self._reject(each, error)
        if not self._batch:
            self._recovered()
            return 0.0
        self.refusal = error
        return self._postpone(str(error), 0.0)

    def postpone(
        self, now: float, reason: str, seconds: float = 0.0, is_sent: bool = True
    ) -> float:
        """Send the batch again: no agent has confirmed it. Return the seconds until then.

        ``seconds``: the least. ``is_sent``: whether an agent may have stored the batch.
        """
        self.refusal = None
        for each in self._batch:
            each.is_sent |= is_sent
        pause = self._postpone(reason, seconds)
        self.expire(now + pause)
        return pause

    def expire(self, now: float) -> None:
        """Fail the publications whose time is over. Call it only if the agent is in trouble."""
        overdue = [each for each in (*self._batch, *self._waiting) if _is_over(each, now)]
        if not overdue:
            return
        self._batch = [each for each in self._batch if not _is_over(each, now)]
        self._waiting = deque(each for each in self._waiting if not _is_over(each, now))
        for each in overdue:
            self._settled(each, "dropped")
            fail(each.future, self._unconfirmed(each))

    def end(self) -> None:
        """Fail all remaining messages."""
        for each in (*self._batch, *self._waiting):
            self._settled(each, "dropped")
            fail(each.future, UnavailableError("closed before an agent confirmed the messages"))
        self._batch.clear()
        self._waiting.clear()

    def _bad(self, error: BadRequestError) -> float:
        if len(self._batch) > 1 and (found := self._named(error)) is not None:
            index, error = found
            self._reject(self._batch.pop(index), error)
        elif len(self._batch) > 1:
            half = len(self._batch) // 2
            self._max_publications = half
            self._waiting.extendleft(reversed(self._batch[half:]))
            del self._batch[half:]
        else:
            self._reject(self._batch.pop(), error)
            self._max_publications = None  # its size was the cause
        self._recovered()
        return 0.0

    def _named(self, error: BadRequestError) -> tuple[int, BadRequestError] | None:
        """Return the publication named in the agent's sentence, and its error."""
        match = _NAMED.search(error.detail)
        if match is None or error.status == 413:
            return None
        left = int(match[1])
        for index, each in enumerate(self._batch):
            if left < len(each.messages):
                detail = f"{error.detail[: match.start(1)]}{left}{error.detail[match.end(1) :]}"
                return index, BadRequestError(error.status, detail)
            left -= len(each.messages)
        return None

    def _reject(self, publication: Publication, error: Exception) -> None:
        if publication.until is None and self._logged_rejection != str(error):  # once an episode
            self._logged_rejection = str(error)
            logger.warning("messages for %s are lost: %s", self._topic, error)
        self._settled(publication, "rejected")
        fail(publication.future, error)

    def _unconfirmed(self, publication: Publication) -> UnavailableError:
        count = len(publication.messages)
        messages = f"{count:,} message{'' if count == 1 else 's'} for {self._topic}"
        if not publication.is_sent:
            return UnavailableError(f"{messages} not stored: {self.trouble}", lost=False)
        return UnavailableError(
            f"no agent has confirmed {messages}, which may still be stored: {self.trouble}"
        )

    def _postpone(self, reason: str, seconds: float) -> float:
        if self.trouble != reason:  # once an episode
            logger.warning("messages for %s wait: %s", self._topic, reason)
        self.trouble = reason
        return self._backoff.next(seconds)

    def _recovered(self) -> None:
        self.trouble, self.refusal = "", None
        self._backoff.reset()


def _is_over(publication: Publication, now: float) -> bool:
    return publication.until is not None and publication.until <= now
