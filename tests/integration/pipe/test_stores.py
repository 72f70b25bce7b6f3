"""Sources of the pipe whose agents change their store: replaced, restored, different ones."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from oplog_pipe.errors import GapError, SourceError
from oplog_pipe.follow import source as source_module
from oplog_pipe.follow.checkpoints import Checkpoints, Witness
from oplogc.topics import Topics
from tests.kits.agents.agent import Agent
from tests.kits.clients.restart import agent_on
from tests.kits.pipe.sources import ops, running, source, written
from tests.kits.servers.ports import free_port
from tests.kits.servers.request import Request
from tests.kits.servers.scripted import End, Reply, ScriptedServer, answer

A, B = "a" * 32, "b" * 32
HEADS = [f"545b55c7f095528dd0f386{number:02x}" for number in range(10)]
RESET = b"id: 1\nevent: reset\ndata:\n\n"
COPY = ("reset", "")
END = ("live", "")


def state(ms: int, id_: str) -> bytes:
    data = f'{{"timestamp":"2014-11-06T11:04:39.041Z","parents":[],"type":"video","id":"{id_}"}}'
    return f"id: {ms}\nevent: insert\ndata: {data}\n\n".encode()


def position(id_: str) -> bytes:
    return f"id: {id_}\n\n".encode()


def live(id_: str) -> bytes:
    return f"id: {id_}\nevent: live\ndata:\n\n".encode()


class Scripted(ScriptedServer):
    """Names a store, tells a head, and sends each request for a stream the next of ``streams``.

    The last one stays open. ``store``, ``head``: None is not told. ``later_head``: told from the
    second question on. ``silent``: so many questions are not answered at all.
    """

    def __init__(
        self, store: str | None, head: str | None, *streams: Sequence[bytes | End]
    ) -> None:
        super().__init__([])
        self.store = store
        self.head = self.later_head = head
        self.silent = 0
        self._streams = list(streams)

    def asked(self) -> list[str | None]:
        """Return the positions of the requests for a stream."""
        streams = [each for each in self.requests if each.path != "/status"]
        return [each.headers.get("last-event-id") for each in streams]

    async def respond(self, request: Request) -> Reply:
        named = [f"Oplog-Store: {self.store}"] if self.store else []
        if request.path == "/status" and self.silent:
            self.silent -= 1
            return None
        if request.path == "/status":
            status = {"store": {"newest_id": self.head}}
            self.head = self.later_head
            return answer("200 OK", json.dumps(status), *named)
        lines = ["HTTP/1.1 200 OK", *named, "Content-Type: text/event-stream", "Connection: close"]
        head = "\r\n".join([*lines, "", ""]).encode()
        if len(self._streams) > 1:
            return [head, *self._streams.pop(0)]
        return [head, *self._streams[0], End.HOLD]


def saved(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "sources" / "oplog.json").read_bytes())
    return found


async def cut_off_copy(folder: Path, store: str | None, head: str | None = HEADS[0]) -> None:
    """Let a pipe begin a copy, and stop it in the middle. What comes together has one witness."""
    with Scripted(store, head, [RESET + state(5, "a") + state(6, "b")]) as agent:
        async with running(folder, source(agent.url)) as pipe:
            await pipe.until_end(3)
        assert agent.asked() == ["0"]


async def test_a_store_that_was_replaced_while_the_pipe_stood_still_is_copied_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await cut_off_copy(tmp_path, A)
    assert saved(tmp_path)["store"] == A
    with Scripted(B, HEADS[1], [state(6, "b")], [RESET, state(1, "c"), live(HEADS[1])]) as agent:
        async with running(tmp_path, source(agent.url)) as pipe:
            assert (await pipe.until_end(6))[3:] == [COPY, ("insert", "c"), END]
            assert [each.copy for each in written(pipe.log)][3:] == [3, 3, 3]
        assert agent.asked() == ["6", "0"]
        assert f"{agent.url}/ops has another store than before" in caplog.text
    assert (saved(tmp_path)["store"], saved(tmp_path)["witness"]) == (B, None)


async def test_a_store_that_was_replaced_twice_is_copied_twice(tmp_path: Path) -> None:
    await cut_off_copy(tmp_path, A)
    for number, store in enumerate((B, A), 1):
        with Scripted(store, HEADS[1], [], [RESET, state(7, "c")]) as agent:
            async with running(tmp_path, source(agent.url)) as pipe:
                found = await pipe.until_end(3 + 2 * number)
                assert found[-2:] == [COPY, ("insert", "c")]
            assert agent.asked()[1] == "0"


async def test_another_store_is_on_disk_before_any_of_its_operations(tmp_path: Path) -> None:
    await cut_off_copy(tmp_path, A)
    with Scripted(B, None, []) as agent:
        async with running(tmp_path, source(agent.url), save_interval=3600.0) as pipe:
            await pipe.until(lambda: len(agent.asked()) == 2)
            found = saved(tmp_path)
            assert (found["store"], found["position"], found["copy"]) == (B, "0", None)


async def test_an_agent_that_names_no_store_counts_as_the_same_and_a_name_is_then_kept(
    tmp_path: Path,
) -> None:
    await cut_off_copy(tmp_path, None, None)
    for store in (A, None):  # upgraded; then behind a proxy that takes the header away
        with Scripted(store, None, []) as agent:
            async with running(tmp_path, source(agent.url)) as pipe:
                await pipe.until(lambda: pipe.sources.status()[0].connected)
                assert agent.asked() == ["6"]
        assert saved(tmp_path)["store"] == A
    assert ops(pipe.log) == [COPY, ("insert", "a"), ("insert", "b")]


async def test_a_copy_goes_on_if_the_store_knows_the_head_of_its_begin(tmp_path: Path) -> None:
    await cut_off_copy(tmp_path, A)
    assert saved(tmp_path)["witness"] == {"position": "6", "head": HEADS[0]}
    rest: list[bytes | End] = [state(6, "b"), state(7, "c"), live(HEADS[1]), End.HOLD]
    with Scripted(A, HEADS[1], rest, [position(HEADS[0])]) as agent:
        async with running(tmp_path, source(agent.url)) as pipe:
            found = await pipe.until_end(6)
            assert found[3:] == [("insert", "b"), ("insert", "c"), END]
            assert {each.copy for each in written(pipe.log)} == {0}
        assert agent.asked() == ["6", HEADS[0]]


async def test_a_store_that_has_lost_the_head_is_copied_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await cut_off_copy(tmp_path, A)
    new = [RESET, state(5, "b"), live(HEADS[1])]
    with Scripted(A, HEADS[1], [], [RESET], new) as agent:
        async with running(tmp_path, source(agent.url)) as pipe:
            assert (await pipe.until_end(6))[3:] == [COPY, ("insert", "b"), END]
        assert agent.asked() == ["6", HEADS[0], "0"]
        assert "does not go on from before: its store was restored from a backup" in caplog.text


async def test_a_copy_resumes_at_the_last_witness_because_later_states_have_none(
    tmp_path: Path,
) -> None:
    """After the witness an object may have changed that the copy would get behind ``live``."""
    await cut_off_copy(tmp_path, A)
    checkpoints = Checkpoints(tmp_path)
    found = checkpoints.load("oplog")
    assert found is not None
    checkpoints.save("oplog", replace(found, witness=Witness("5", HEADS[0])))
    known = [position(HEADS[0])]
    with Scripted(A, HEADS[0], [], known, [state(6, "b"), End.HOLD], known) as agent:
        async with running(tmp_path, source(agent.url)) as pipe:
            assert (await pipe.until_end(4))[3:] == [("insert", "b")]
        assert agent.asked() == ["6", HEADS[0], "5", HEADS[0]]


async def test_states_are_not_recorded_before_the_agent_has_told_its_head(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begin = [RESET + state(5, "a")]
    with Scripted(A, HEADS[0], begin, [], begin) as agent:
        agent.silent = 1
        async with running(tmp_path, source(agent.url)) as pipe:
            assert await pipe.until_end(2) == [COPY, ("insert", "a")]
        assert agent.asked() == ["0", "5", "0"]
    assert "/status of the agent does not answer; trying again" in caplog.text


async def test_witnesses_are_renewed_while_a_copy_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "WITNESS_SECONDS", 0.0)
    with Scripted(A, HEADS[0], [RESET + state(5, "a") + state(6, "b"), End.HOLD], []) as agent:
        agent.later_head = HEADS[1]
        async with running(tmp_path, source(agent.url), save_interval=0.01) as pipe:
            renewed = {"position": "6", "head": HEADS[1]}
            await pipe.until(lambda: pipe.log.end == 3 and saved(tmp_path)["witness"] == renewed)


async def test_two_agents_with_different_stores_end_the_source_with_both_addresses(
    tmp_path: Path,
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with Agent(tmp_path / "a") as one, Agent(tmp_path / "b") as other:
        both = source(one.url, other.url)
        with pytest.raises(SourceError, match="have different stores: list only agents") as raised:
            async with running(tmp_path / "log", both) as pipe:
                await pipe.task
        assert f"{one.url}/ops and {other.url}/ops" in str(raised.value)
        error = pipe.sources.status()[0].error
        assert error is not None
        assert "different stores" in error
        assert ops(pipe.log) == []
        other.kill()
        async with running(tmp_path / "log", both) as pipe:
            await pipe.until_end(2)


async def test_agents_of_one_store_are_one_source(tmp_path: Path) -> None:
    with Agent(tmp_path) as one, Agent(tmp_path) as other:
        async with running(tmp_path / "log", source(one.url, other.url)) as pipe:
            await pipe.until_end(2)
        store = one.status()["store"]["identity"]
        assert other.status()["store"]["identity"] == store
    assert saved(tmp_path / "log")["store"] == store


async def test_a_topic_of_another_store_is_a_gap(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The agent alone would go on at the time of the position: it is before the second message."""
    caplog.set_level(logging.WARNING)
    port = free_port()
    folder = tmp_path / "log"
    for name in "ab":
        (tmp_path / name).mkdir()
    with Agent(tmp_path / "b") as agent, Topics(agent.url) as topics:
        topics.create("t")
        topics.publish("t", "old").result()
    with agent_on(port, tmp_path / "a") as agent, Topics(agent.url) as topics:
        settings = source(agent.url, log="default/t")
        topics.create("t")
        topics.publish("t", "1").result()
        async with running(folder, settings) as pipe:
            await pipe.until_end(1)
            await pipe.until(lambda: pipe.sources.status()[0].received == 1)
    with agent_on(port, tmp_path / "b") as agent, Topics(agent.url) as topics:
        topics.publish("t", "2").result()
        for _ in range(2):
            with pytest.raises(GapError, match="has another store than before; set on_gap"):
                async with running(folder, settings) as pipe:
                    await pipe.task
        assert ops(pipe.log)[1:] == []
        settings = source(agent.url, log="default/t", on_gap="continue")
        async with running(folder, settings) as pipe:
            await pipe.until_end(3)
            payloads = [json.loads(each.data)["payload"] for each in written(pipe.log)]
            assert payloads == ["1", "old", "2"]
    assert "another store than before; going on with the oldest message" in caplog.text
