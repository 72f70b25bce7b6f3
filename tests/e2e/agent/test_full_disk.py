"""An agent whose disk fills up: a file system of 24 MB."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kits.agents.agent import DEADLINE, Agent, Answer
from tests.kits.agents.disk import SECONDS, DiskAgent
from tests.kits.agents.topics import Topic
from tests.kits.clock.waiting import attempts
from tests.kits.processes.disk import SmallDisk

MIB = 1 << 20
NEEDED = 3 * MIB
RESERVE = NEEDED // 2
PAYLOAD = "p" * 60_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with SmallDisk(tmp_path / "disk", "size=24m") as disk:
        yield disk


def operation(id_: str) -> dict[str, Any]:
    return {"event": "insert", "type": "thing", "id": id_}


def wait_low(agent: Agent) -> None:
    """Wait until the agent has seen that the disk is short."""
    for _ in attempts(SECONDS):
        if agent.status()["disk"]["free_bytes"] < NEEDED + MIB:
            return
    raise AssertionError(agent.status())


def publish_until_refused(disk: SmallDisk, topic: Topic) -> tuple[int, Answer]:
    """Publish 6 MB and more, until the disk is full. Return the number and the refusal.

    Another program takes most of the rest of the disk.
    """
    for number in range(1000):
        if number == 100:
            disk.fill(leave=NEEDED + MIB // 8)
            wait_low(topic.agent)
        answer = topic.try_publish([{"payload": PAYLOAD}])
        while answer.status != 200 and "too little free space for" in answer.json["detail"]:
            time.sleep(0.1)  # more than the disk takes until the next look at it
            answer = topic.try_publish([{"payload": PAYLOAD}])
        if answer.status != 200:
            return number, answer
    raise AssertionError("never refused")


def assert_refused(answer: Answer) -> None:
    assert answer.status == 503, answer
    assert int(answer.headers["retry-after"]) > 0
    assert "store oplog.db: its disk is full" in answer.json["detail"]
    assert "not confirmed" not in answer.json["detail"]


def assert_taken_soon(agent: Agent) -> None:
    """Assert that an operation is taken again within SECONDS."""
    for _ in attempts(SECONDS):
        if (status := agent.post(operation("after"))) == 204:
            return
    raise AssertionError(f"still {status}: {agent.status()}")


def test_intake_stops_while_there_is_room_for_a_deletion_which_brings_it_back(
    disk: SmallDisk,
) -> None:
    with DiskAgent(disk) as agent:
        agent.wait_disk(reserve="ready", reserve_bytes=RESERVE, needed_bytes=NEEDED)
        assert agent.post(operation("before")) == 204
        kept, dropped = Topic(agent, "tests/kept").create(), Topic(agent, "tests/dropped").create()
        kept.publish("first")
        txn = agent.request("POST", "/v1/txns", {}).json["txn"]
        count, refused = publish_until_refused(disk, dropped)
        assert_refused(refused)
        assert "bytes more must become free" in refused.json["detail"]

        status = agent.wait_status(status="DEGRADED")
        assert "its disk is full" in status["reason"]
        assert status["disk"]["intake_stopped"]
        metrics = agent.request("GET", "/metrics").body
        assert b"\noplog_disk_intake_stopped 1.0\n" in metrics
        assert b"\noplog_disk_needed_bytes 3.145728e+06\n" in metrics
        record = {"lsn": 0, "topic": "tests/kept", "payload": "x"}
        for path, body in (
            ("/ops", operation("refused")),
            (f"{kept.path}/publish", {"messages": [{"payload": "x"}]}),
            (f"{kept.path}/publish", {"transactionWritePointer": 7, "messages": [{"payload": ""}]}),
            (f"{kept.path}/store", {"transactionWritePointer": 7, "messages": [{"payload": ""}]}),
            (f"/v1/txns/{txn}/records", {"records": [record]}),
            ("/v1/txns", {}),
        ):
            assert_refused(agent.request("POST", path, body))
        received = agent.status()["events_received"]
        agent.send_udp(operation("udp"), operation("udp"))
        agent.wait_status(
            events_received=received + 2, events_discarded=1 + 2, queue_size=0, events_ingested=1
        )
        assert kept.payloads() == ["first"]
        assert len(dropped.poll_all()) == count
        assert list(agent.replicate()) == ["thing/before"]

        dropped.delete()
        assert_taken_soon(agent)
        agent.wait_status(status="OK")
        kept.publish("second")
        assert agent.request("POST", f"/v1/txns/{txn}/abort", {}).status == 200
        assert agent.count("disk: store") == 1
        assert agent.count("disk: the disk has room again") == 1
        assert agent.stop() == 0
    with DiskAgent(disk) as agent:
        assert list(agent.replicate()) == ["thing/before", "thing/after"]
        assert Topic(agent, "tests/kept").payloads() == ["first", "second"]


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_an_agent_starts_on_a_disk_without_a_free_byte_and_takes_a_deletion(
    disk: SmallDisk, end: str
) -> None:
    with DiskAgent(disk) as agent:
        agent.wait_disk(reserve="ready")
        assert agent.post(operation("before")) == 204
        for name in ("tests/kept", "tests/dropped"):
            Topic(agent, name).create().publish("first")
        count, _ = publish_until_refused(disk, Topic(agent, "tests/dropped"))
        if end == "killed":
            agent.kill()
        else:
            assert agent.stop() == 0
    disk.fill()
    assert disk.free == 0
    with DiskAgent(disk) as agent:
        assert agent.wait_disk(reserve="used", reserve_bytes=0)["intake_stopped"]
        assert agent.status()["status"] == "DEGRADED"
        assert_refused(agent.request("POST", "/", operation("refused")))
        assert list(agent.replicate()) == ["thing/before"]
        kept, dropped = Topic(agent, "tests/kept"), Topic(agent, "tests/dropped")
        assert kept.payloads() == ["first"]
        assert len(dropped.poll_all()) == 1 + count
        dropped.delete()
        assert_taken_soon(agent)
        kept.publish("second")
        assert agent.status()["disk"]["reserve_bytes"] == 0  # free pages of the file stand in
        (disk.folder / "filler").unlink()
        agent.wait_disk(reserve="ready", reserve_bytes=RESERVE)
        assert agent.stop() == 0
    with DiskAgent(disk) as agent:
        assert list(agent.replicate()) == ["thing/before", "thing/after"]
        assert Topic(agent, "tests/kept").payloads() == ["first", "second"]


@pytest.mark.parametrize("properties", [{"ttl": 1}, {"max_bytes": MIB}])
def test_a_lower_property_brings_intake_back_on_a_disk_without_a_free_byte(
    disk: SmallDisk, properties: dict[str, int]
) -> None:
    with DiskAgent(disk) as agent:
        agent.wait_disk(reserve="ready")
        topic = Topic(agent).create()
        publish_until_refused(disk, topic)
        disk.fill()
        topic.change(**properties)
        assert_taken_soon(agent)


def test_intake_goes_on_by_itself_after_another_program_has_filled_and_emptied_the_disk(
    disk: SmallDisk,
) -> None:
    with DiskAgent(disk) as agent:
        agent.wait_disk(reserve="ready")
        topic = Topic(agent).create()
        topic.publish("before")
        filler = disk.fill()
        agent.wait_disk(reserve="ready", intake_stopped=True)
        assert_refused(topic.try_publish([{"payload": "refused"}]))
        assert topic.payloads() == ["before"]
        filler.unlink()
        assert_taken_soon(agent)
        topic.publish("after")
        assert topic.payloads() == ["before", "after"]
        agent.wait_disk(reserve="ready", intake_stopped=False)
        assert agent.count("disk: store") == 1


def test_without_a_reserve_an_agent_starts_and_opens_its_store_as_soon_as_there_is_room(
    disk: SmallDisk,
) -> None:
    with DiskAgent(disk, "--disk-reserve", "0") as agent:
        assert agent.post(operation("before")) == 204
        assert agent.stop() == 0
    assert [path.name for path in disk.folder.iterdir()] == ["oplog.db"]
    filler = disk.fill()
    with DiskAgent(disk, "--disk-reserve", "0") as agent:
        assert agent.status()["status"] == "DEGRADED"
        assert_refused(agent.request("POST", "/", operation("refused")))
        filler.unlink()
        assert_taken_soon(agent)
        assert list(agent.replicate()) == ["thing/before", "thing/after"]


def test_two_agents_on_one_file_share_one_reserve(disk: SmallDisk) -> None:
    with DiskAgent(disk) as one, DiskAgent(disk) as other:
        one.wait_disk(reserve="ready")
        other.wait_disk(reserve="ready")
        topic = Topic(one).create()
        publish_until_refused(disk, topic)
        filler = disk.fill()
        for agent in (one, other):
            agent.wait_disk(intake_stopped=True)
        Topic(other).delete()
        for agent in (one, other):
            assert_taken_soon(agent)
        filler.unlink()
        for agent in (one, other):
            agent.wait_disk(reserve="ready", reserve_bytes=RESERVE, intake_stopped=False)
        names = sorted(path.name for path in disk.folder.iterdir())
        assert names == ["oplog.db", "oplog.db-reserve", "oplog.db-shm", "oplog.db-wal"]


def test_a_disk_without_inodes_stops_intake_until_there_are_some(tmp_path: Path) -> None:
    with SmallDisk(tmp_path / "disk", "size=24m,nr_inodes=8") as disk:
        with DiskAgent(disk) as agent:
            agent.wait_disk(reserve="ready")
            assert agent.post(operation("before")) == 204
            assert agent.stop() == 0
        (disk.folder / "fillers").mkdir()
        for number in range(100):
            try:
                (disk.folder / "fillers" / str(number)).touch()
            except OSError:
                break
        with DiskAgent(disk) as agent:
            assert "DEGRADED" in agent.status()["status"]
            shutil.rmtree(disk.folder / "fillers")
            assert_taken_soon(agent)
            assert list(agent.replicate()) == ["thing/before", "thing/after"]


assert SECONDS <= DEADLINE
