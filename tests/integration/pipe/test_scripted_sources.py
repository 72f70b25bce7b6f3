"""Sources of the pipe at servers that answer as a test says: copies cut off, refusals, a full
disk.
"""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oplog_pipe.commitlog.codec import Mode
from oplog_pipe.commitlog.files import File, Files
from oplog_pipe.commitlog.log import CommitLog
from oplog_pipe.errors import ConfigError, LogError, SourceError
from oplog_pipe.follow.sources import Sources
from oplog_pipe.model.options import TlsOptions
from tests.integration.relay.http_agents import respond
from tests.integration.relay.tls_files import certificate
from tests.kits.agents.agent import Agent
from tests.kits.clients.streams import IDS
from tests.kits.pipe.sources import FAST, Script, ops, running, source, written

RESET = b"id: 1\nevent: reset\ndata:\n\n"
TOPIC_RESET = b"id: 0\nevent: reset\ndata:\n\n"


def state(ms: int, id_: str, event: str = "insert") -> bytes:
    data = f'{{"timestamp":"2014-11-06T11:04:39.041Z","parents":[],"type":"video","id":"{id_}"}}'
    return f"id: {ms}\nevent: {event}\ndata: {data}\n\n".encode()


def live(position: str = IDS[0]) -> bytes:
    return f"id: {position}\nevent: live\ndata:\n\n".encode()


async def test_a_copy_that_was_cut_off_anywhere_is_continued_and_ended_as_the_same_copy(
    tmp_path: Path,
) -> None:
    pieces = [RESET, state(5, "a"), state(6, "b")]
    rest = [[state(5, "a"), state(6, "b")], [state(5, "a"), state(6, "b")], [state(6, "b")]]
    for got in (1, 2, 3):
        folder = tmp_path / str(got)
        with Script(pieces[:got]) as agent:
            async with running(folder, source(agent.url)) as pipe:
                await pipe.until_end(got)
                assert pipe.sources.status()[0].phase == "copy"
        if got == 2:
            (folder / "sources" / "oplog.json").unlink()
        with Script([*rest[got - 1], state(7, "b", "delete"), live()]) as agent:
            async with running(folder, source(agent.url)) as pipe:
                assert pipe.sources.status()[0].phase == "copy"
                await pipe.until_end(got + len(rest[got - 1]) + 2)
                found = written(pipe.log)
                assert [each.copy for each in found] == [0] * len(found)
                assert [each.mode for each in found[:-1]] == [Mode.COPY] * (len(found) - 1)
                assert found[-1].mode == Mode.COMPLETE
                await pipe.until(lambda: pipe.sources.status()[0].phase == "sync")
            assert agent.last_ids() == [["1", "5", "6"][got - 1]]


async def test_a_copy_that_begins_before_the_last_one_has_ended_replaces_it(tmp_path: Path) -> None:
    stream = [RESET, state(5, "a"), RESET, state(5, "a"), live()]
    with Script(stream, status=respond("200 OK", {"store": "?"})) as agent:
        async with running(tmp_path, source(agent.url)) as pipe:
            await pipe.until_end(5)
            assert [each.copy for each in written(pipe.log)] == [0, 0, 2, 2, 2]
            await pipe.until(lambda: pipe.sources.status()[0].copied == 1)
            await pipe.until(lambda: pipe.sources.status()[0].copy_total is None)


async def test_changes_since_the_position_are_no_copy_and_their_live_ends_none(
    tmp_path: Path,
) -> None:
    with (
        Script(
            [RESET, live()], [state(8, "a", "delete")], [state(8, "a", "delete"), live(IDS[1])]
        ) as agent,
    ):
        async with running(tmp_path, source(agent.url)) as pipe:
            await pipe.until_end(5)
            found = written(pipe.log)
            assert [each.copy for each in found] == [0, 0, None, None, None]
            assert {each.mode for each in found[2:]} == {Mode.SYNC}
            await pipe.until(lambda: pipe.sources.status()[0].phase == "sync")
        assert agent.last_ids() == ["0", IDS[0], "8"]
    with Script([state(9, "b")]) as agent:
        async with running(tmp_path, source(agent.url)) as pipe:
            await pipe.until_end(6)
            await pipe.until(lambda: pipe.sources.status()[0].phase == "changes")


async def test_positions_without_an_event_are_kept_when_the_pipe_stops(tmp_path: Path) -> None:
    with Script([RESET, live(), f"id: {IDS[5]}\n\n".encode()]) as agent:
        async with running(tmp_path, source(agent.url)) as pipe:
            await pipe.until(lambda: pipe.sources.status()[0].position == IDS[5])
            assert ops(pipe.log) == [("reset", ""), ("live", "")]
    saved = json.loads((tmp_path / "sources" / "oplog.json").read_bytes())
    assert (saved["position"], saved["end"]) == (IDS[5], 2)
    with Script(b"") as agent:
        async with running(tmp_path, source(agent.url)) as pipe:
            await pipe.until(lambda: agent.streamed != [])
        assert agent.last_ids() == [IDS[5]]


async def test_the_first_reset_of_a_topic_is_no_gap(tmp_path: Path) -> None:
    first = "0" * 12 + "2a" + "0" * 26
    stream = [TOPIC_RESET, f'id: {first}\nevent: message\ndata: {{"payload":"a"}}\n\n'.encode()]
    with Script(stream) as agent:
        async with running(tmp_path, source(agent.url, log="default/t")) as pipe:
            assert await pipe.until_end(1) == [("insert", first)]


async def test_a_gap_that_was_passed_is_told_once_even_if_nothing_came_behind_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    id_ = "0" * 12 + "2a" + "0" * 26
    message = f'id: {id_}\nevent: message\ndata: {{"payload":"a"}}\n\n'.encode()
    topic: dict[str, Any] = {"log": "default/t"}
    with Script(message + TOPIC_RESET) as agent:
        async with running(tmp_path, source(agent.url, on_gap="continue", **topic)) as pipe:
            await pipe.until_end(1)
            await pipe.until(lambda: pipe.sources.status()[0].position == "0")
    with Script(TOPIC_RESET + message) as agent:
        async with running(tmp_path, source(agent.url, **topic)) as pipe:
            assert await pipe.until_end(2) == [("insert", id_)] * 2
        assert agent.last_ids() == ["0"]
    assert caplog.text.count("are gone") == 1


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (b"id: x\n\n", "'x', which is no position"),
        (b"id: 5\nevent: insert\ndata: {}\n\n", "the operation 5 cannot be read"),
        (b"id: 5\nevent: insert\ndata: [\n\n", "is it an agent"),
        (
            b'id: 5\nevent: insert\ndata: {"timestamp":"2014-11-06T11:04:39","type":"a","id":"b"}'
            b"\n\n",
            "the operation 5 cannot be read",
        ),
    ],
)
async def test_a_stream_that_is_none_ends_the_run_behind_what_came_before(
    tmp_path: Path, block: bytes, words: str
) -> None:
    with Script([RESET + state(5, "a") + block]) as agent:
        with pytest.raises(SourceError, match=words):
            async with running(tmp_path, source(agent.url)) as pipe:
                await pipe.task
        log = CommitLog.view(tmp_path)
        assert ops(log) == [("reset", ""), ("insert", "a")]


class FullFiles(Files):
    """A disk that is full for files whose name has some letters, from a moment on."""

    def __init__(self, letters: str) -> None:
        self.letters = letters
        self.is_full = False

    def open(self, path: Path, *, write: bool = False) -> "FullFile":  # type: ignore[override]
        return FullFile(super().open(path, write=write), lambda: self._refuse(path))

    def _refuse(self, path: Path) -> None:
        if self.is_full and self.letters in path.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


class FullFile:
    def __init__(self, file: File, refuse: Callable[[], None]) -> None:
        self.read, self.size = file.read, file.size
        self.truncate, self.sync = file.truncate, file.sync
        self._write = file.write
        self._refuse = refuse

    def write(self, data: bytes, at: int) -> None:
        self._refuse()
        self._write(data, at)


@pytest.mark.parametrize(("letters", "position"), [(".log", "0"), (".json", IDS[0])])
async def test_a_full_disk_ends_the_run_and_a_later_one_resumes_behind_what_was_written(
    tmp_path: Path, letters: str, position: str
) -> None:
    files = FullFiles(letters)
    log = CommitLog.open(tmp_path, files=files)
    files.is_full = True
    options: dict[str, Any] = {"files": files, "backoff": FAST, "save_interval": 0.0}
    with Script(RESET + live()) as agent, pytest.raises(LogError, match="No space left"):
        await Sources([source(agent.url)], log, tmp_path, **options).run()
    assert ops(log) == ([] if letters == ".log" else [("reset", ""), ("live", "")])
    log.close()
    with Script(b"") as agent:
        async with running(tmp_path, source(agent.url)) as pipe:
            await pipe.until(lambda: agent.streamed != [])
        assert agent.last_ids() == [position]


async def test_files_for_tls_are_used_for_the_stream_and_the_total(tmp_path: Path) -> None:
    tls = certificate(tmp_path, "agent")
    flags = ("--tls-certificate", str(tls.certificate), "--tls-key", str(tls.key))
    options = TlsOptions(str(tls.certificate))
    with Agent(tmp_path, *flags) as agent:
        async with running(tmp_path / "log", source(agent.url, tls=options)) as pipe:
            await pipe.until_end(2)
            await pipe.until(lambda: pipe.sources.status()[0].copy_total == 0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tls": TlsOptions(ca_file="missing.pem")}, "ca_file: cannot read"),
        ({"log": "a/b/c"}, "is not a topic"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_with_the_source(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    log = CommitLog.open(tmp_path)
    with pytest.raises(ConfigError, match=f"source 'oplog': .*{words}"):
        Sources([source("http://localhost", **settings)], log, tmp_path)
    with pytest.raises(ConfigError, match="no address"):
        Sources([source("localhost")], log, tmp_path)
    log.close()
