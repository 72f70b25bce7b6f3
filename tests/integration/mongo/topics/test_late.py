"""Inserts into topics that are carried out after the front has passed their place are not lost."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from pymongo.database import Database

from oplogd.store.mongo.link.layout import Document
from tests.kits.agents.agent import DEADLINE, Agent, Answer
from tests.kits.agents.topics import Topic, ok, received
from tests.kits.mongo.agents import LEASE, wait_for
from tests.kits.mongo.wire import Command, Wire

ENTRIES = "oplog_entries"
HOUR = 3_600
# Longer than the agent lets an insert take without checking it.
PAUSE_SECONDS = 1.2


class HastyAgent(Agent):
    """Sweeps entries a second after a sweep saw them, and checks inserts half as late."""

    program = ("-m", "tests.integration.mongo.hasty_agent")


def agent(folder: Path, url: str) -> Agent:
    flags = ("--log-collection", "plain", "--lease", LEASE, "--topic-cleanup", "200ms")
    return HastyAgent(folder, "--mongo-url", url, *flags)


def inserts(command: Command) -> bool:
    return command.get("insert") == ENTRIES


def asks_for_heads(command: Command) -> bool:
    return command.get("find") == ENTRIES and "$in" in str(command.get("filter"))


def stored(database: Database[Document], upto: int) -> int:
    """Return the number of entries in the only topic up to an offset."""
    (topic,) = database["oplog_topics"].find({"log": {"$gt": 0}})
    places = {"$gt": f"{topic['log']:06x}{0:010x}", "$lte": f"{topic['log']:06x}{upto:010x}"}
    return database[ENTRIES].count_documents({"_id": places})


@pytest.mark.parametrize(("how", "beside"), [("stopped", 20), ("held", 20), ("stopped", 0)])
def test_a_message_whose_writer_paused_while_the_front_passed_its_place_is_not_lost(
    beside: int,
    how: str,
    wire: Wire,
    database: Database[Document],
    plain_url: str,
    pool: ThreadPoolExecutor,
    tmp_path: Path,
) -> None:
    """``beside``: messages that the other agent publishes meanwhile, and that are swept."""
    with agent(tmp_path, plain_url) as other, agent(tmp_path, wire.url()) as paused:
        there, here = Topic(other).create(ttl=HOUR), Topic(paused)
        with there.stream() as stream:
            here.publish(*(f"first {number}" for number in range(5)))
            held = wire.hold(inserts) if how == "held" else wire.hold(asks_for_heads, "after")
            published: Future[Answer] = pool.submit(here.try_publish, ["late"])
            held.wait()
            if how == "stopped":
                paused.freeze()
                held.release()
            threading.Event().wait(PAUSE_SECONDS)
            for number in range(beside):
                there.publish(f"beside {number}")
            seen = received(stream.take(5 + beside))
            there.change(ttl=1)
            # The newest entry stays.
            wait_for("the sweep", lambda: stored(database, 5 + beside - 1) == 0)
            there.change(ttl=HOUR)
            if how == "stopped":
                paused.thaw()
            else:
                held.release()
            ok(published.result(DEADLINE))
            there.publish("last")
            while seen[-1].payload != "last":
                seen += received(stream.take(1))
        assert [message.payload for message in seen].count("late") == 1
        assert [message.id for message in seen] == sorted({message.id for message in seen})
        for topic in (there, here):
            assert topic.wait_for_payloads("late", "last") == seen[-2:]
