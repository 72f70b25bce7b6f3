"""A deletion of a topic that is cut after any command is finished by any other agent."""

import contextlib

from pymongo.database import Database

from oplogd.errors import StoreUnavailableError
from oplogd.store.mongo import Timing
from oplogd.store.mongo.link.layout import Document
from oplogd.store.topics import Placed, Refused
from tests.integration.mongo.topics.topics import ENTRIES, NAME, append, payloads_of, place, stored
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.wire import Command, Wire

MOST_COMMANDS = 30


class CutAfter:
    """Matches the commands on topics from a number on: the last of them is carried out."""

    def __init__(self, commands: int) -> None:
        self._left = commands

    def __call__(self, command: Command) -> bool:
        names = ("find", "insert", "update", "delete")
        if not {command.get(name) for name in names} & {"oplog_topics", ENTRIES}:
            return False
        self._left -= 1
        return self._left <= 0


async def test_a_deletion_that_was_cut_is_finished_by_whoever_meets_it(
    wire: Wire, database: Database[Document], plain_url: str, make_store: MakeStore
) -> None:
    other = make_store(plain_url, "plain", lease=600)
    await other.open()
    # It does not hold the lease, so it sends nothing else.
    store = make_store(wire.url(retryWrites="false", retryReads="false"), "plain", lease=600)
    await store.open()
    ends: set[tuple[bool, bool]] = set()
    for commands in range(1, MOST_COMMANDS):
        old = await other.topics.create(NAME, None)
        last = (await place(other.topics, old, "a", "b")).last
        wire.cut(CutAfter(commands))
        with contextlib.suppress(StoreUnavailableError):
            await store.topics.delete(NAME)
        cuts = wire.cuts
        wire.cut(None)
        is_ended = stored(database, old)[-1][1] == "end"
        found = await other.topics.find(NAME)
        ends.add((is_ended, found is None))
        outcome = await append(other.topics, old, "c")
        assert (outcome is Refused.DELETED) == is_ended
        if is_ended:
            assert await other.topics.find(NAME) is None
            new = await other.topics.create(NAME, None)
            front = (await other.topics.log(new).locate()).front
            assert (front.ms, front.sequence) > (last.ms, last.sequence)
            assert await payloads_of(other.topics, new) == []
        else:
            assert isinstance(outcome, Placed)
            assert await payloads_of(other.topics, old) == ["a", "b", "c"]
        await other.topics.delete(NAME)
        if not cuts:
            break
    else:
        raise AssertionError("the deletion needs more commands than expected")
    assert commands > 5
    assert ends == {(False, False), (True, False), (True, True)}
    await store.close()


async def test_a_name_whose_deletion_was_cut_can_be_created_again(
    database: Database[Document], plain_url: str, make_store: MakeStore
) -> None:
    other = make_store(plain_url, "plain", lease=600)
    await other.open()
    old = await other.topics.create(NAME, None)
    mark = (await place(other.topics, old, "a")).last
    database["oplog_entries"].insert_one(
        {"_id": f"{old.log:06x}{2:010x}", "ts": mark.ms, "q": mark.sequence + 1, "kind": "end"}
    )
    assert await other.topics.find(NAME) == old
    new = await other.topics.create(NAME, None)
    assert new.log != old.log
    assert await payloads_of(other.topics, new) == []


async def test_a_sweep_frees_the_name_that_a_cut_deletion_has_left(
    wire: Wire,
    database: Database[Document],
    plain_url: str,
    make_store: MakeStore,
    clock: VirtualClock,
) -> None:
    sweeper = make_store(plain_url, "plain", lease=600, timing=Timing(settle_seconds=0.0))
    await sweeper.open()
    store = make_store(wire.url(retryWrites="false", retryReads="false"), "plain", lease=600)
    await store.open()
    old = await sweeper.topics.create(NAME, None)
    await place(sweeper.topics, old, "a")
    # The deletion ends before it removes the document of the topic.
    wire.cut(lambda command: command.get("delete") == "oplog_topics", "before")
    with contextlib.suppress(StoreUnavailableError):
        await store.topics.delete(NAME)
    wire.cut(None)
    assert await sweeper.topics.find(NAME) == old
    clock.ms += 1
    await sweeper.topics.sweep()
    assert await sweeper.topics.find(NAME) is None
    assert stored(database, old) == []
    new = await sweeper.topics.create(NAME, None)
    assert isinstance(await append(sweeper.topics, new, "b"), Placed)
    await store.close()
