"""The collector leaves connected streams alone and collects ended ones."""

import gc
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from oplogd.garbage import Freezer
from oplogd.stream.phases.phase import StreamCounters


class Cycle:
    """Only the collector can free it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def hub_of(connections: int) -> Any:
    return SimpleNamespace(
        counters=StreamCounters(connections=connections), consumers=set(range(connections))
    )


@pytest.mark.thorough
def test_connected_streams_are_not_visited_and_ended_ones_are_collected() -> None:
    streams = [Cycle() for _ in range(1000)]
    watched = [weakref.ref(stream) for stream in streams]
    hub = hub_of(1000)
    freezer = Freezer(hub)
    freezer.look()
    assert gc.get_freeze_count() > 1000
    streams.clear()
    gc.collect()
    assert all(stream() is not None for stream in watched), "the collector visited them"
    hub.consumers.clear()
    freezer.look()
    freezer.look()
    assert all(stream() is None for stream in watched), "they were not collected"


def test_many_ended_streams_cause_one_collection_after_the_last_and_a_few_cause_none() -> None:
    hub = hub_of(10_000)
    freezer = Freezer(hub)
    freezer.look()
    collections = gc.get_stats()[2]["collections"]
    for connected, collected in ((5000, 0), (5000, 0), (1000, 0), (900, 0), (900, 1), (900, 1)):
        hub.consumers = set(range(connected))
        freezer.look()
        assert gc.get_stats()[2]["collections"] == collections + collected


@pytest.mark.thorough
def test_streams_that_end_all_the_time_are_thawed_and_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thaws: list[None] = []
    monkeypatch.setattr(gc, "unfreeze", lambda: thaws.append(None))
    hub = hub_of(1000)
    freezer = Freezer(hub)
    for _ in range(300):
        hub.counters.connections += 100
        freezer.look()
    assert 1 <= len(thaws) <= 3


def test_the_garbage_of_failed_requests_is_not_frozen_with_the_streams() -> None:
    hub = hub_of(1000)
    freezer = Freezer(hub)
    freezer.look()
    watched = []
    for _ in range(50):
        failed = [Cycle() for _ in range(100)]
        watched += [weakref.ref(each) for each in failed]
        failed.clear()
        hub.counters.connections += 100
        freezer.look()
    assert sum(each() is not None for each in watched) == 0


def test_other_garbage_is_collected_as_usual() -> None:
    Freezer(hub_of(1000)).look()
    other = Cycle()
    watched = weakref.ref(other)
    del other
    gc.collect()
    assert watched() is None
