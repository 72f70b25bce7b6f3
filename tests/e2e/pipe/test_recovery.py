"""Kills, failures and stops of a pipe with sinks that a test controls.

The log of a new pipe begins with `reset` (offset 0) and `live` (1), so the first operation has the
offset 2.
"""

from pathlib import Path

import pytest

from tests.e2e.pipe.control import Control
from tests.kits.agents.agent import Agent
from tests.kits.pipe.processes import PipeFolder, PipeProcess


class Scene:
    """A pipe with controlled sinks, and operations for it by their offsets."""

    def __init__(self, agent: Agent, folder: Path, sinks: int = 1, **settings: object) -> None:
        self.agent = agent
        self.sinks = [Control(folder, f"c{number}") for number in range(sinks)]
        self.pipe = PipeFolder(
            folder, [agent.url], [sink.settings() for sink in self.sinks], **settings
        )
        self._sent = 1

    def begin(self, *flags: str) -> PipeProcess:
        """Start the pipe in a new folder, and wait until the copy of nothing is complete."""
        process = self.pipe.run(*flags)
        for sink in self.sinks:
            sink.wait(lambda calls: ("end_copy", "system/oplog") in calls)
        return process

    def send_up_to(self, offset: int) -> None:
        """Send the operations up to this offset, in one request."""
        numbers = range(self._sent + 1, offset + 1)
        body = [{"event": "insert", "type": "video", "id": f"v{each}"} for each in numbers]
        assert self.agent.post(body) == 200
        self._sent = offset

    def wait_flushed(self, *offsets: int) -> None:
        self.pipe.wait_status(lambda status: tuple(flushed(status)) == offsets)

    def wait_logged(self, offset: int) -> None:
        self.pipe.wait_status(lambda status: status["log"]["end"] == offset + 1)

    def forget(self) -> None:
        for sink in self.sinks:
            sink.forget()


def flushed(status: dict[str, list[dict[str, int]]]) -> list[int]:
    return [sink["flushed"] for sink in status["sinks"]]


def singles(first: int, last: int) -> list[list[int]]:
    return [[offset] for offset in range(first, last + 1)]


def test_after_a_kill_each_sink_gets_its_backlog_one_by_one_before_the_source_is_read(
    agent: Agent, tmp_path: Path
) -> None:
    scene = Scene(agent, tmp_path, 2)
    c0, c1 = scene.sinks
    c0.plan(hold=13)
    c1.plan(hold=14)
    with scene.begin() as process:
        scene.send_up_to(12)
        c0.wait_written(12)
        c1.wait_written(12)
        scene.send_up_to(13)
        c0.wait_held(13)
        scene.wait_flushed(12, 13)
        scene.send_up_to(15)
        c1.wait_held(14)
        scene.wait_logged(15)
        process.kill()
    scene.forget()
    c0.plan(hold=15)
    c1.plan()
    scene.send_up_to(16)
    connections = agent.status()["connections"]
    with scene.pipe.run() as process:
        c1.wait_written(15)
        c0.wait_held(15)
        assert agent.status()["connections"] == connections
        assert scene.pipe.status()["log"]["end"] == 16
        assert (c0.writes(), c1.writes()) == (singles(13, 14), singles(14, 15))
        process.wait_log("one message at a time: c0 3, c1 2\n")
        assert process.count("recovery is complete") == 0
        c0.plan()
        c0.release()
        process.wait_log("recovery is complete")
        c0.wait_written(16)
        c1.wait_written(16)
        assert process.stop() == 0
    assert (c0.writes(), c1.writes()) == (singles(13, 16), singles(14, 16))


def test_a_failed_batch_stops_the_pipe_and_the_poisoned_message_is_found_and_skipped(
    agent: Agent, tmp_path: Path
) -> None:
    scene = Scene(agent, tmp_path)
    (sink,) = scene.sinks
    sink.plan(hold=8)
    with scene.begin() as process:
        scene.send_up_to(7)
        sink.wait_written(7)
        scene.send_up_to(8)
        sink.wait_held(8)
        scene.send_up_to(15)
        scene.wait_logged(15)
        sink.plan(fail=[14])
        sink.release()
        assert process.wait() == 4
    assert ("refused", [*range(9, 16)]) in sink.calls()
    assert flushed(scene.pipe.status()) == [8]

    sink.forget()
    with scene.pipe.run() as process:
        assert process.wait() == 4
        assert "c0 refuses 14" in process.text()
    assert sink.writes() == singles(9, 13)
    assert flushed(scene.pipe.status()) == [13]

    assert "14" in scene.pipe.command("log", "show", "14")
    scene.pipe.command("offset", "ack", "c0", "14")
    sink.forget()
    scene.send_up_to(16)
    with scene.pipe.run() as process:
        sink.wait_written(16)
        assert process.stop() == 0
    assert sink.writes() == singles(15, 16)


def test_a_stop_lets_the_sink_finish_and_nothing_comes_again(agent: Agent, tmp_path: Path) -> None:
    scene = Scene(agent, tmp_path)
    (sink,) = scene.sinks
    sink.plan(hold=5)
    with scene.begin() as process:
        scene.send_up_to(5)
        sink.wait_held(5)
        scene.send_up_to(10)
        scene.wait_logged(10)
        process.process.terminate()
        process.wait_log("stopping")
        sink.plan()
        sink.release()
        assert process.wait() == 0
    assert [offset for write in sink.writes() for offset in write] == [*range(2, 11)]
    sink.forget()
    with scene.pipe.run() as process:
        scene.send_up_to(11)
        sink.wait_written(11)
        assert process.stop() == 0
    assert sink.writes() == [[11]]


def test_a_sink_that_hangs_ends_with_the_time_out_and_keeps_its_offset(
    agent: Agent, tmp_path: Path
) -> None:
    scene = Scene(agent, tmp_path, 2, shutdown_timeout="1s")
    c0, c1 = scene.sinks
    c0.plan(hold=5)
    with scene.begin() as process:
        scene.send_up_to(4)
        c0.wait_written(4)
        scene.wait_flushed(4, 4)
        scene.send_up_to(9)
        c0.wait_held(5)
        scene.wait_flushed(4, 9)
        assert process.stop() == 0
    assert flushed(scene.pipe.status()) == [4, 9]
    scene.forget()
    c0.plan()
    with scene.pipe.run() as process:
        c0.wait_written(9)
        assert process.stop() == 0
    assert (c0.writes(), c1.writes()) == (singles(5, 9), [])


def test_a_sink_that_filters_everything_reaches_the_end(agent: Agent, tmp_path: Path) -> None:
    scene = Scene(agent, tmp_path)
    (sink,) = scene.sinks
    scene.pipe.write([sink.settings(namespace="^photo$")])
    with scene.begin() as process:
        scene.send_up_to(20)
        scene.wait_flushed(20)
        assert process.stop() == 0
    assert sink.writes() == []


def test_one_at_a_time_writes_single_messages_always(agent: Agent, tmp_path: Path) -> None:
    scene = Scene(agent, tmp_path)
    (sink,) = scene.sinks
    with scene.begin("--one-at-a-time") as process:
        scene.send_up_to(30)
        sink.wait_written(30)
        assert process.stop() == 0
    assert sink.writes() == singles(2, 30)


@pytest.mark.parametrize("start", ["end", "copy"])
def test_a_sink_added_to_a_compacted_log_is_refused_without_start(
    agent: Agent, tmp_path: Path, start: str
) -> None:
    scene = Scene(agent, tmp_path, 2, max_segment_bytes="64 KB")
    first = [sink.settings() for sink in scene.sinks]
    with scene.begin() as process:
        scene.send_up_to(1000)
        scene.pipe.wait_status(lambda status: status["log"]["compacted"] > 0)
        assert process.stop() == 0
    end = scene.pipe.status()["log"]["end"]
    third = Control(tmp_path, "c2")
    scene.pipe.write([*first, third.settings()])
    sentence = scene.pipe.command("run", code=2)
    assert "sinks[2].start" in sentence
    assert third.calls() == []

    scene.pipe.write([*first, third.settings(start=start)])
    with scene.pipe.run() as process:
        if start == "copy":
            third.wait(lambda calls: ("end_copy", "system/oplog") in calls)
        scene.send_up_to(1001)
        scene.pipe.wait_status(
            lambda status: (
                len({*flushed(status), status["log"]["end"] - 1}) == 1
                and status["log"]["end"] > end + (999 if start == "copy" else 0)
            )
        )
        assert process.stop() == 0
    count = sum(map(len, third.writes()))
    assert count == (1000 if start == "copy" else 1)
