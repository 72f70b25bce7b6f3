"""What a pipe serves over HTTP, and what `status` makes of it."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import msgspec
import pytest
import pytest_asyncio

from oplog_pipe.cli import main
from oplog_pipe.commitlog import CommitLog
from oplog_pipe.errors import ConfigError
from oplog_pipe.model.status import LogStatus, PipeStatus, SinkStatus, SourceStatus
from oplog_pipe.watch.listen import listening
from tests.kits.agents.agent import DEADLINE

STATUS = PipeStatus(
    "1.2", 7500.0, LogStatus(2, 20, 4321, 3, 5, 5000, "the log is full: mend it"),
    [
        SourceStatus("oplog", "system/oplog", "copy", True, "p1", 12, 3, 1500, 5000, 1500),
        SourceStatus("ns/a", "ns/a", error="no agent\nanswers"),
    ],
    [
        SinkStatus("search", "elasticsearch", "bulk", 15, 14, 4, 61.5, 9, 3, 1, 2, "HTTP 503"),
        SinkStatus("copy", "file", "recovery", copy_due=True),
    ],
)  # fmt: skip
METRICS = """\
oplog_pipe_info{version="1.2"} 1.0
oplog_pipe_log_oldest_offset 2.0
oplog_pipe_log_end_offset 20.0
oplog_pipe_log_compacted_offset 5.0
oplog_pipe_log_bytes 4321.0
oplog_pipe_log_max_bytes 5000.0
oplog_pipe_log_full 1.0
oplog_pipe_log_segments 3.0
oplog_pipe_source_connected{source="oplog"} 1.0
oplog_pipe_source_connected{source="ns/a"} 0.0
oplog_pipe_source_received_total{source="oplog"} 12.0
oplog_pipe_source_received_total{source="ns/a"} 0.0
oplog_pipe_source_filtered_total{source="oplog"} 3.0
oplog_pipe_source_filtered_total{source="ns/a"} 0.0
oplog_pipe_source_copying{source="oplog"} 1.0
oplog_pipe_source_copying{source="ns/a"} 0.0
oplog_pipe_source_copied_messages{source="oplog"} 1500.0
oplog_pipe_source_copied_messages{source="ns/a"} 0.0
oplog_pipe_source_copy_size_messages{source="oplog"} 5000.0
oplog_pipe_source_newest_timestamp_seconds{source="oplog"} 1.5
oplog_pipe_sink_offset{sink="search"} 15.0
oplog_pipe_sink_offset{sink="copy"} -1.0
oplog_pipe_sink_flushed_offset{sink="search"} 14.0
oplog_pipe_sink_flushed_offset{sink="copy"} -1.0
oplog_pipe_sink_lag_entries{sink="search"} 4.0
oplog_pipe_sink_lag_entries{sink="copy"} 0.0
oplog_pipe_sink_lag_seconds{sink="search"} 61.5
oplog_pipe_sink_lag_seconds{sink="copy"} 0.0
oplog_pipe_sink_recovering{sink="search"} 0.0
oplog_pipe_sink_recovering{sink="copy"} 1.0
oplog_pipe_sink_parked{sink="search"} 0.0
oplog_pipe_sink_parked{sink="copy"} 0.0
oplog_pipe_sink_failing{sink="search"} 1.0
oplog_pipe_sink_failing{sink="copy"} 0.0
oplog_pipe_sink_written_total{sink="search"} 9.0
oplog_pipe_sink_written_total{sink="copy"} 0.0
oplog_pipe_sink_filtered_total{sink="search"} 3.0
oplog_pipe_sink_filtered_total{sink="copy"} 0.0
oplog_pipe_sink_dead_letters_total{sink="search"} 1.0
oplog_pipe_sink_dead_letters_total{sink="copy"} 0.0
oplog_pipe_sink_copies_not_whole{sink="search"} 0.0
oplog_pipe_sink_copies_not_whole{sink="copy"} 0.0
oplog_pipe_sink_copy_due{sink="search"} 0.0
oplog_pipe_sink_copy_due{sink="copy"} 1.0
oplog_pipe_sink_retries_total{sink="search"} 2.0
oplog_pipe_sink_retries_total{sink="copy"} 0.0
"""
SETTINGS = """\
dir: ./pipe
listen: ADDRESS
sources:
  - {name: oplog, agents: [http://localhost:8042]}
  - {name: ns/a, agents: [http://localhost:8042], log: ns/a}
sinks:
  - {name: search, type: file, path: a.jsonl}
  - {name: copy, type: file, path: b.jsonl}
"""


@dataclass
class Served:
    """A pipe that listens. Change ``status`` and ``is_live``."""

    address: str = ""
    status: PipeStatus = field(default_factory=lambda: STATUS)
    is_live: bool = True

    async def get(self, path: str, method: str = "GET") -> httpx.Response:
        async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE) as client:
            return await client.request(method, f"http://{self.address}{path}")


@pytest_asyncio.fixture
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setattr("oplog_pipe.watch.listen._PATIENCE", DEADLINE)
    found = Served()
    with listening("localhost:0", lambda: found.status, lambda: found.is_live) as address:
        found.address = address
        yield found


async def test_the_paths_show_state_life_and_every_metric(served: Served) -> None:
    answer = await served.get("/status")
    assert answer.headers["Content-Type"] == "application/json"
    assert msgspec.json.decode(answer.content, type=PipeStatus) == STATUS
    answer = await served.get("/live")
    assert (answer.status_code, answer.text) == (200, "live\n")
    served.is_live = False
    answer = await served.get("/live")
    assert (answer.status_code, answer.text) == (503, "stopped\n")
    lines = (await served.get("/metrics?x=1")).text.splitlines()
    assert [line for line in lines if not line.startswith("#")] == METRICS.splitlines()
    types = [line.split()[2:] for line in lines if line.startswith("# TYPE")]
    assert all((kind == "counter") == name.endswith("_total") for name, kind in types)
    answer = await served.get("/other")
    assert (answer.status_code, answer.text) == (404, "/status, /live and /metrics are here\n")
    answer = await served.get("/status", "HEAD")
    assert (answer.status_code, answer.content) == (200, b"")
    assert (await served.get("/status", "POST")).status_code == 501


async def test_an_address_that_cannot_be_used_is_an_error_of_its_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with (
            pytest.raises(
                ConfigError, match=f"^listen: cannot listen on {listen}: Address already"
            ),
            listening(listen, lambda: STATUS, lambda: True),
        ):
            pass


async def run_status(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """Run `status` in a thread: the event loop serves what it asks for."""
    assert await asyncio.to_thread(main, ["status", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


async def test_status_shows_the_figures_of_a_running_pipe(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pipe.yaml"
    file.write_text(SETTINGS.replace("ADDRESS", served.address))
    status = served.status = msgspec.structs.replace(STATUS, folder=str(tmp_path / "pipe"))
    assert await run_status(capsys, "-f", str(file)) == [
        "pipe: runs for 2 h 5 min, version 1.2",
        "log: offsets 2 to 19, 4.2 KB of at most 4.9 KB in 3 segments, compacted up to 5",
        "",
        "SOURCE  PHASE                 POSITION  RECEIVED",
        "oplog   copy: 1,500 of 5,000  p1              12  connected",
        "ns/a    sync                  none             0  not connected",
        "",
        "SINK    TYPE           PHASE     OFFSET  FLUSHED  LAG  AGE        WRITTEN  FILTERED"
        "  DEAD  RETRIES",
        "search  elasticsearch  bulk          15       14    4  1 min 1 s        9         3"
        "     1        2",
        "copy    file           recovery      -1       -1    0                   0         0"
        "     0        0",
        "",
        "the log is full: mend it",
        "source ns/a: no agent\\nanswers",
        "sink search: HTTP 503",
        "sink copy: gave up its place, because the log had reached max_log_bytes; it waits for its"
        " next message, and gets a copy once it has written one; to copy at once, stop the pipe,"
        " run `oplog-pipe copy`, and start it",
    ]
    (line,) = await run_status(capsys, "--json", "-f", str(file))
    assert json.loads(line) == {"live": True, **msgspec.to_builtins(status)}

    CommitLog.open(tmp_path / "pipe").close()
    served.status = msgspec.structs.replace(STATUS, folder="/another/pipe")
    lines = await run_status(capsys, "-f", str(file))
    assert (
        lines[0] == f"pipe: figures from its folder; no answer from this pipe at {served.address}"
    )
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"127.0.0.1:{closed.getsockname()[1]}"
    file.write_text(SETTINGS.replace("ADDRESS", nobody))
    lines = await run_status(capsys, "-f", str(file))
    assert lines[0] == f"pipe: figures from its folder; no answer from this pipe at {nobody}"
