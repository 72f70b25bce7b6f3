"""Counts of messages, in total and for the busiest topics. No I/O."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from oplogd.model.names import TopicName

LABELS = 200
# Stands for all topics without a label. No topic has this name: it has no namespace.
OTHER = "_other"
_CANDIDATES = 1000

logger = logging.getLogger("oplogd.topics")


@dataclass(slots=True)
class _Labelled:
    """``shown``: messages since the topic got its label. ``weight``: total of its messages."""

    shown: int
    weight: int


class Busiest:
    """Counts by topic, for the busiest topics and for all others together. Memory is bounded.

    No count decreases: a topic with a new label begins at 0, without it it counts in OTHER.
    """

    def __init__(self, labels: int = LABELS) -> None:
        self._labels = labels
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


class Counts(NamedTuple):
    """Counts since the start."""

    publishes: int = 0
    messages_published: int = 0
    messages_refused: int = 0
    polls: int = 0
    messages_polled: int = 0


class TopicCounters:
    """Counts of all topics. ``published`` and ``polled``: messages by topic.

    No method raises: a fault in a figure must not fail a publish or a poll. It is logged once.
    """

    def __init__(self) -> None:
        self.counts = Counts()
        self.published = Busiest()
        self.polled = Busiest()
        self._is_faulty = False

    def add_published(self, name: TopicName, messages: int) -> None:
        """Count a publish whose messages are durable."""
        counts = self.counts
        self.counts = counts._replace(
            publishes=counts.publishes + 1, messages_published=counts.messages_published + messages
        )
        self._add(self.published, name, messages)

    def add_refused(self, messages: int) -> None:
        """Count messages of a failed publish. Some may be stored: see NotConfirmedError."""
        refused = self.counts.messages_refused + messages
        self.counts = self.counts._replace(messages_refused=refused)

    def add_polled(self, name: TopicName, messages: int) -> None:
        """Count an answered poll."""
        counts = self.counts
        self.counts = counts._replace(
            polls=counts.polls + 1, messages_polled=counts.messages_polled + messages
        )
        self._add(self.polled, name, messages)

    def _add(self, busiest: Busiest, name: TopicName, messages: int) -> None:
        try:
            busiest.add(str(name), messages)
        except Exception as error:
            if not self._is_faulty:
                logger.error("the figures of the busiest topics are wrong", exc_info=error)
            self._is_faulty = True
