"""Counts of messages, in total and for the busiest topics. No I/O."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from oplogd.clock import Clock
from oplogd.model.names import TopicName
from oplogd.shared.page import Page
from oplogd.shared.tally import Tally, tally

LABELS = 200
# Stands for all topics without a label. No topic has this name: it has no namespace.
OTHER = "_other"
_CANDIDATES = 1000

_SAVE_SECONDS = 1.0
# For both figures of a page: names of up to 499 characters, counts of 19 digits, in two halves.
PAGE_BYTES = 2 * 2 * (LABELS + 2) * (499 + 32)

logger = logging.getLogger("oplogd.topics")


@dataclass(slots=True)
class _Labelled:
    """``shown``: messages since the topic got its label. ``weight``: total of its messages."""

    shown: int
    weight: int


class Busiest:
    """Counts by topic, for the busiest topics and for all others together. Memory is bounded.

    No count decreases: a topic with a new label begins at 0, without it it counts in OTHER.
    ``keeps_labels``: the first topics get the labels and keep them, as sums over workers need it.
    """

    def __init__(self, labels: int = LABELS, *, keeps_labels: bool = False) -> None:
        self._labels = labels
        self._keeps_labels = keeps_labels
        self._labelled: dict[str, _Labelled] = {}
        self._candidates: dict[str, int] = {}
        self._least = 0
        self._other = 0

    def add(self, name: str, count: int) -> None:
        labelled = self._labelled.get(name)
        if labelled is not None:
            labelled.shown += count
            labelled.weight += count
        elif len(self._labelled) < self._labels:
            self._labelled[name] = _Labelled(count, count)
        elif self._keeps_labels:
            self._other += count
        else:
            self._other += count
            weight = self._candidates.get(name, 0) + count
            self._candidates[name] = weight
            if weight > self._least:
                self._exchange(name, weight)
            if len(self._candidates) > _CANDIDATES:  # forget the less busy half
                busier = sorted(self._candidates.items(), key=lambda each: each[1])
                self._candidates = dict(busier[_CANDIDATES // 2 :])

    def shown(self) -> Mapping[str, int]:
        """Return the counts by label."""
        return {**{name: each.shown for name, each in self._labelled.items()}, OTHER: self._other}

    def restore(self, shown: Mapping[str, int], total: int) -> None:
        """Continue the counts of an earlier process, as ``shown`` returned them.

        ``total``: its messages. Those without a saved label count in OTHER.
        """
        counts = dict(shown)
        unsaved = max(0, total - sum(counts.values()))
        self._other = counts.pop(OTHER, 0) + unsaved
        self._labelled = {name: _Labelled(count, count) for name, count in counts.items()}

    def _exchange(self, name: str, weight: int) -> None:
        """Give the label of the least busy topic to this one if this one is busier."""
        least = min(self._labelled, key=lambda each: self._labelled[each].weight)
        self._least = self._labelled[least].weight
        if weight > self._least:
            loser = self._labelled.pop(least)
            self._other += loser.shown
            self._candidates[least] = loser.weight
            del self._candidates[name]
            self._labelled[name] = _Labelled(0, weight)


class ByTopic(msgspec.Struct):
    """Messages by label."""

    published: Mapping[str, int] = {}
    polled: Mapping[str, int] = {}


def saved_in(page: Page) -> ByTopic:
    """Return the counts by topic that a worker has saved."""
    text = page.read()
    return msgspec.json.decode(text, type=ByTopic) if text else ByTopic()


@tally
class Counts(Tally):
    """Counts since the start."""

    publishes: int
    messages_published: int
    messages_refused: int
    polls: int
    messages_polled: int


class TopicCounters:
    """Counts of all topics. ``published`` and ``polled``: messages by topic.

    ``counts`` and ``page`` may hold figures of an earlier process in this place. No method for a
    message raises: a fault in a figure must not fail a publish or a poll. It is logged once.
    """

    def __init__(self, counts: Counts | None = None, page: Page | None = None) -> None:
        self.counts = counts or Counts()
        self.published = Busiest(keeps_labels=page is not None)
        self.polled = Busiest(keeps_labels=page is not None)
        self._is_faulty = False
        self._page = page
        self._saved = Counts()
        if page is not None:
            saved = saved_in(page)
            self.published.restore(saved.published, self.counts.messages_published)
            self.polled.restore(saved.polled, self.counts.messages_polled)

    def add_published(self, name: TopicName, messages: int) -> None:
        """Count a publish whose messages are durable."""
        self.counts.publishes += 1
        self.counts.messages_published += messages
        self._add(self.published, name, messages)

    def add_refused(self, messages: int) -> None:
        """Count messages of a failed publish. Some may be stored: see NotConfirmedError."""
        self.counts.messages_refused += messages

    def add_polled(self, name: TopicName, messages: int) -> None:
        """Count an answered poll."""
        self.counts.polls += 1
        self.counts.messages_polled += messages
        self._add(self.polled, name, messages)

    def save(self) -> None:
        """Write the counts by topic to the page, if there is one."""
        if self._page is not None and self._saved != self.counts:
            shown = ByTopic(self.published.shown(), self.polled.shown())
            self._page.write(msgspec.json.encode(shown))
            self._saved.assign(self.counts)

    async def keep_saved(self, clock: Clock) -> None:
        """Save once per second until cancelled."""
        while True:
            await clock.sleep(_SAVE_SECONDS)
            self.save()

    def _add(self, busiest: Busiest, name: TopicName, messages: int) -> None:
        try:
            busiest.add(str(name), messages)
        except Exception as error:
            if not self._is_faulty:
                logger.error("the figures of the busiest topics are wrong", exc_info=error)
            self._is_faulty = True
