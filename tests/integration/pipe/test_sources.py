"""Sources of the pipe that follow real agents."""

import asyncio
import json
import logging
from pathlib import Path

import pytest
from msgspec.structs import replace

from oplog_pipe.commitlog.codec import Mode
from oplog_pipe.commitlog.log import CommitLog
from oplog_pipe.errors import ConfigError, GapError, LogDamagedError, SourceError
from oplog_pipe.follow.checkpoints import Checkpoints, SourceCheckpoint
from oplog_pipe.follow.sources import Sources
from oplog_pipe.follow.track import Track
from oplogc.topics import Message, Topics
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clients.restart import agent_on
from tests.kits.pipe.sources import ops, running, source, written
from tests.kits.servers.ports import free_port


def operation(id_: str, event: str = "insert", type_: str = "video") -> dict[str, object]:
    time = "2014-11-06T11:04:39.041Z"
    return {"event": event, "type": type_, "id": id_, "parents": ["é"], "timestamp": time}


async def test_the_log_has_the_copy_and_then_what_happens_exactly_as_the_stream(
    tmp_path: Path,
) -> None:
    with Agent(tmp_path, "--object-url", "http://api/{{type}}/{{id}}") as agent:
        agent.post([operation("a"), operation("b"), operation("c"), operation("b", "delete")])
        with agent.follow("0") as stream:
            async with running(tmp_path / "log", source(agent.url, name="a/b")) as pipe:
                copy = await pipe.until_end(4)
                names = sorted(each["name"] for each in agent.status()["consumers"])
                assert names == ["", "oplog-pipe.a.b"]
                agent.post([operation("a", "update"), operation("c", "delete"), operation("d")])
                assert await pipe.until_end(7) == [
                    *copy,
                    ("update", "a"),
                    ("delete", "c"),
                    ("insert", "d"),
                ]
                sent = stream.take(7)
                found = written(pipe.log)
                assert copy == [("reset", ""), ("insert", "a"), ("insert", "c"), ("live", "")]
                assert [each.position for each in found] == [event.id for event in sent]
                assert [each.op for each in found] == [event.event for event in sent]
                operations = [each for each in found if each.key == "video"]
                assert [each.data.decode() for each in operations] == [
                    event.data for event in sent if event.data
                ]
                assert {each.timestamp for each in operations} == {1_415_271_879_041}
                copying, ended, after = Mode.COPY, Mode.COMPLETE, Mode.SYNC
                assert [each.mode for each in found] == [copying] * 3 + [ended] + [after] * 3
                assert [each.copy for each in found] == [0] * 4 + [None] * 3
                assert [each.key for each in found if each.key != "video"] == ["source//a/b"] * 2
                await pipe.until(lambda: pipe.sources.status()[0].received == 5)
                (status,) = pipe.sources.status()
                assert (status.phase, status.connected, status.error) == ("sync", True, None)
                assert (status.received, status.copied, status.filtered) == (5, 2, 0)
                assert status.position == sent[-1].id
                assert status.newest_ms == 1_415_271_879_041
                await pipe.until(lambda: pipe.sources.status()[0].copy_total == 2)


async def test_sources_resume_behind_the_last_entry_whatever_became_of_the_checkpoint(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "log"
    checkpoint = folder / "sources" / "my%2Foplog.json"
    with Agent(tmp_path) as agent:
        settings = source(agent.url, name="my/oplog")
        agent.post(operation("a"))
        async with running(folder, settings) as pipe:
            await pipe.until_end(3)
        old = checkpoint.read_bytes()
        agent.post(operation("b"))
        async with running(folder, settings) as pipe:
            assert (await pipe.until_end(4))[3] == ("insert", "b")
        checkpoint.write_bytes(old)  # as after a crash between an append and its checkpoint
        agent.post(operation("c"))
        async with running(folder, settings) as pipe:
            assert (await pipe.until_end(5))[3:] == [("insert", "b"), ("insert", "c")]
        checkpoint.unlink()
        agent.post(operation("d"))
        async with running(folder, settings) as pipe:
            assert (await pipe.until_end(6))[4:] == [("insert", "c"), ("insert", "d")]
        checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
        with pytest.raises(LogDamagedError, match=r"my%2Foplog\.json is damaged: .*take it away"):
            async with running(folder, settings):
                pass
        checkpoint.write_bytes(old)
        found = Checkpoints(folder).load("my/oplog")
        assert found is not None
        Checkpoints(folder).save("my/oplog", replace(found, end=30))
        with pytest.raises(LogDamagedError, match="30 entries, but the log ends at 6"):
            async with running(folder, settings):
                pass
        checkpoint.write_bytes(old)
        with pytest.raises(ConfigError, match="give the source another name"):
            async with running(folder, source(agent.url, name="my/oplog", log="default/t")):
                pass


async def test_a_copy_begins_again_when_it_is_restarted_even_if_nothing_ran_since(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "log"
    with Agent(tmp_path) as agent:
        agent.post(operation("a"))
        async with running(folder, source(agent.url)) as pipe:
            await pipe.until_end(3)
        log = CommitLog.open(folder)
        Sources([source(agent.url)], log, folder).restart_copy(["oplog"])
        log.close()
        async with running(folder, source(agent.url)) as pipe:
            await pipe.until_end(6)
            assert [each.copy for each in written(pipe.log)] == [0, 0, 0, 3, 3, 3]


async def test_a_copy_begins_again_between_two_runs_unless_there_is_one(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        agent.post(operation("a"))
        topic = source(agent.url, name="topic", log="default/t")
        settings = [source(agent.url), topic]
        async with running(tmp_path / "log", source(agent.url)) as pipe:
            await pipe.until_end(3)
            await pipe.until(lambda: pipe.sources.without_copy(0) == ["oplog"])
            assert pipe.sources.without_copy(-1) == []
            pipe.task.cancel()
            await asyncio.wait({pipe.task})
            pipe.sources.restart_copy(["oplog"])
            assert pipe.sources.without_copy(2) == []
            task = asyncio.create_task(pipe.sources.run())
            async with asyncio.timeout(DEADLINE):
                while pipe.log.end < 6:
                    await asyncio.sleep(0.005)
            task.cancel()
            await asyncio.wait({task})
            assert [each.copy for each in written(pipe.log)] == [0, 0, 0, 3, 3, 3]
            assert [pipe.sources.without_copy(each) for each in (2, 3)] == [[], ["oplog"]]
        log = CommitLog.open(tmp_path / "log")
        assert Sources(settings, log, tmp_path / "log").without_copy(5) == ["oplog"]
        log.close()


def test_a_copy_counts_if_it_began_behind_the_offset() -> None:
    found = Track(source("http://localhost"), SourceCheckpoint("system/oplog", "0", 9))
    assert found.has_copy(8)
    found.begin(SourceCheckpoint("system/oplog", "0", 12, copy=9))
    assert [found.has_copy(since) for since in (8, 9)] == [True, False]
    found.begin(SourceCheckpoint("system/oplog", f"{5:024x}", 12))
    assert not found.has_copy(8)


async def test_what_the_namespace_does_not_match_is_not_in_the_log_but_moves_the_position(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "log"
    with Agent(tmp_path) as agent:
        settings = source(agent.url, namespace="^vid")
        async with running(folder, settings) as pipe:
            await pipe.until_end(2)
            agent.post([operation("a", type_="user"), operation("b"), operation("c", type_="x")])
            newest = agent.status()["store"]["newest_id"]
            # The last figure that the recorder's thread changes.
            await pipe.until(lambda: pipe.sources.status()[0].filtered == 2)
            status = pipe.sources.status()[0]
            assert (status.position, status.received) == (newest, 3)
            assert ops(pipe.log) == [("reset", ""), ("live", ""), ("insert", "b")]
        async with running(folder, settings) as pipe:
            assert pipe.sources.status()[0].position == newest
            agent.post(operation("d"))
            assert (await pipe.until_end(4))[2:] == [("insert", "b"), ("insert", "d")]
            await pipe.until(lambda: pipe.sources.status()[0].received == 1)


async def test_an_agent_that_starts_again_is_followed_on_and_another_one_takes_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oplog_pipe")
    port, other = free_port(), free_port()
    settings = source(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{other}")
    with agent_on(port, tmp_path) as agent:
        agent.post(operation("a"))
        async with running(tmp_path / "log", settings) as pipe:
            await pipe.until_end(3)
            agent.kill()
            # There is none while a stream is open.
            await pipe.until(lambda: pipe.sources.status()[0].error is not None)
            assert "http://127.0.0.1:" in (pipe.sources.status()[0].error or "")
            with agent_on(other, tmp_path) as agent_2:
                agent_2.post(operation("b"))
                assert (await pipe.until_end(4))[3] == ("insert", "b")
                assert pipe.sources.status()[0].error is None
    warnings = [each.getMessage() for each in caplog.records if each.name == "oplog_pipe"]
    assert warnings[0].startswith(f"source 'oplog': http://127.0.0.1:{port}/ops: ")
    assert warnings[-1] == "source 'oplog': receiving again"


async def test_refusals_end_the_run_with_a_sentence_without_secrets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with Agent(tmp_path, environ={"OPLOGD_PASSWORD": "sesame"}) as agent:
        address = agent.url.replace("//", "//me:wr0ng@")
        for number, (settings, words) in enumerate(
            [
                (source(agent.url, password="wr0ng"), "look at the password of the source"),
                (source(address), "look at the password of the source"),
                (source(agent.url, password="sesame", log="default/t"), "HTTP 404"),
            ]
        ):
            with pytest.raises(SourceError, match=words) as raised:
                async with running(tmp_path / str(number), settings) as pipe:
                    await pipe.task
            assert agent.url in str(raised.value)
            assert "wr0ng" not in str(raised.value) + caplog.text + repr(settings)
            assert "sesame" not in str(raised.value) + caplog.text
            assert pipe.sources.status()[0].error is not None
        settings = source(agent.url, password="sesame")
        async with running(tmp_path / "right", settings) as pipe:
            await pipe.until_end(2)


async def test_messages_of_a_topic_are_as_a_poll_shows_them(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, Topics(agent.url) as topics:
        topics.create("ns/t")
        topics.create("ns/u")
        sent = [
            Message("é", "k", [("a", "b")]),
            Message(b"\xff"),
            Message(None, "k"),
            Message(None),
        ]
        topics.publish("ns/t", *sent).result()
        topics.publish("ns/u", "one").result()
        path = "/v1/namespaces/ns/topics/t/poll"
        two = [source(agent.url, name=log, log=log) for log in ("ns/t", "ns/u")]
        async with running(tmp_path / "log", *two) as pipe:
            await pipe.until_end(5)
            topics.publish("ns/u", "two").result()
            await pipe.until_end(6)
            found = [each for each in written(pipe.log) if each.key == "ns/t"]
            polled = agent.request("POST", path).json
            assert [json.loads(each.data) for each in found] == polled
            assert [[*json.loads(each.data)] for each in found] == [[*each] for each in polled]
            ids = [each["id"] for each in polled]
            assert [each.position for each in found] == ids
            assert [each.timestamp for each in found] == [int(id_[:16], 16) for id_ in ids]
            assert [(each.op, each.id) for each in found] == [
                ("insert", "k"),
                ("insert", ids[1]),
                ("delete", "k"),
                ("insert", ids[3]),
            ]
            others = [each for each in written(pipe.log) if each.key == "ns/u"]
            assert [json.loads(each.data)["payload"] for each in others] == ["one", "two"]
            assert {each.mode for each in written(pipe.log)} == {Mode.SYNC}
            assert [each.name for each in pipe.sources.status()] == ["ns/t", "ns/u"]
            await pipe.until(lambda: [each.received for each in pipe.sources.status()] == [4, 2])


async def test_a_topic_is_read_committed_unless_the_settings_say_otherwise(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, Topics(agent.url) as topics:
        topics.create("t")
        committed = source(agent.url, name="c", log="default/t")
        other = source(agent.url, name="u", log="default/t", isolation="read_uncommitted")
        async with running(tmp_path / "log", committed, other) as pipe:
            txn = agent.request("POST", "/v1/txns", {}).json["txn"]
            record = {"topic": "default/t", "lsn": 0, "payload": "in"}
            agent.request("POST", f"/v1/txns/{txn}/records", {"records": [record]})
            topics.publish("t", "out").result()
            await pipe.until_end(3)  # the record once, and twice the message outside
            agent.request("POST", f"/v1/txns/{txn}/commit", {"records": 1})
            await pipe.until_end(4)
            found: dict[str, list[str]] = {"c": [], "u": []}
            for each in pipe.log.read(0):
                record = json.loads(each.data)
                found[record["source"]].append(record["data"]["payload"])
            assert found == {"c": ["out", "in"], "u": ["in", "out"]}


async def test_a_gap_in_a_topic_stops_the_source_unless_it_may_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "log"
    with Agent(tmp_path) as agent, Topics(agent.url) as topics:
        stopping = source(agent.url, log="default/t")
        topics.create("t")
        topics.publish("t", "1").result()
        async with running(folder, stopping) as pipe:
            await pipe.until_end(1)
            await pipe.until(lambda: pipe.sources.status()[0].received == 1)
            position = pipe.sources.status()[0].position
        topics.delete("t")
        topics.create("t")
        topics.publish("t", "2", "3").result()
        for _ in range(2):
            with pytest.raises(GapError, match="set on_gap: continue"):
                async with running(folder, stopping) as pipe:
                    await pipe.task
            assert pipe.sources.status()[0].position == position
            assert pipe.log.end == 1
        settings = source(agent.url, log="default/t", on_gap="continue")
        async with running(folder, settings) as pipe:
            await pipe.until_end(3)
            payloads = [json.loads(each.data)["payload"] for each in written(pipe.log)]
            assert payloads == ["1", "2", "3"]
        assert f"{position} are gone" in caplog.text
        async with running(folder, stopping) as pipe:
            topics.publish("t", "4").result()
            await pipe.until_end(4)


async def test_a_source_of_each_kind_runs_beside_the_other(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, Topics(agent.url) as topics:
        topics.create("t")
        both = source(agent.url), source(agent.url, name="t", log="default/t")
        async with running(tmp_path / "log", *both) as pipe:
            for number in range(20):
                agent.post(operation(f"o{number}"))
                topics.publish("t", Message("x", f"t{number}")).result()
            found = await pipe.until_end(42)
            for letter in "ot":
                expected = [f"{letter}{number}" for number in range(20)]
                assert [id_ for _, id_ in found if id_.startswith(letter)] == expected
            await pipe.until(lambda: [each.received for each in pipe.sources.status()] == [20, 20])
        (first, second) = (json.loads(path.read_bytes()) for path in files(tmp_path / "log"))
        assert (first["end"], second["end"]) == (42, 42)


def files(folder: Path) -> list[Path]:
    return sorted((folder / "sources").iterdir())
