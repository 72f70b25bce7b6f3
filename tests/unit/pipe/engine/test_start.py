"""Sinks that are new in a folder, and sinks whose entries are gone."""

import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oplog_pipe.commitlog import CommitLog, OffsetLog
from oplog_pipe.model.exits import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from oplog_pipe.model.settings import FunctionStep, SourceSettings
from oplog_pipe.sinks.custom import CustomOptions
from tests.unit.pipe.engine.engine import Folder, RecordingSink, change, control, sink

AGENTS = ("http://localhost:1",)
OPLOG = SourceSettings("oplog", AGENTS)
SHOP = SourceSettings("shop/orders", AGENTS, "shop/orders")


def folder(path: Path, **start: Any) -> Folder:
    found = Folder(path, sink("c0"), sink("new", **start))
    found.fill(change(), change(), change())
    found.acknowledge(c0=2)
    return found


def compact(found: Folder) -> None:
    """Leave a log with three entries of which two are gone."""
    log = CommitLog.open(found.path, max_segment_bytes=1)
    log.append([change(), change()])
    log.compact(log.end - 2)
    log.close()
    found.acknowledge(c0=4)


async def test_a_new_sink_without_start_takes_the_whole_log(tmp_path: Path) -> None:
    new = RecordingSink("new")
    assert await folder(tmp_path).run(RecordingSink("c0"), new) == EXIT_OK
    assert new.offsets == [0, 1, 2]


async def test_a_new_sink_without_start_is_refused_if_the_log_is_compacted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = folder(tmp_path)
    compact(found)
    new = RecordingSink("new")
    assert await found.run(RecordingSink("c0"), new) == EXIT_USAGE
    assert (new.calls, found.events, sorted(found.flushed())) == ([], [], ["c0"])
    assert "sinks[1].start: sink 'new' is new, and the log is compacted" in caplog.text


async def test_start_end_takes_only_what_comes(tmp_path: Path) -> None:
    found = folder(tmp_path, start="end")
    compact(found)
    new = RecordingSink("new")
    assert await found.run(RecordingSink("c0"), new, brings=[change()]) == EXIT_OK
    assert (new.offsets, found.flushed()["new"]) == ([5], 5)


async def test_start_copy_copies_every_source_of_the_oplog_once(tmp_path: Path) -> None:
    found = folder(tmp_path, start="copy", namespace="^video$")
    found.settings = _with_sources(found, OPLOG, SHOP)
    new = RecordingSink("new")
    async with found.start(RecordingSink("c0"), new, brings=[change()]) as running:
        await running.sources_or_end()
    assert running.sources is not None
    assert (running.sources.copies, new.offsets) == (["oplog"], [3])
    async with found.start(RecordingSink("c0"), RecordingSink("new")) as again:
        await again.sources_or_end()
    assert again.sources is not None
    assert (again.code, again.sources.copies) == (EXIT_OK, [])


@pytest.mark.parametrize("sources", [(OPLOG, SHOP), (SHOP,)])
async def test_start_copy_is_refused_for_messages_that_have_no_copy(
    tmp_path: Path, sources: tuple[SourceSettings, ...], caplog: pytest.LogCaptureFixture
) -> None:
    found = folder(tmp_path, start="copy")
    found.settings = _with_sources(found, *sources)
    assert await found.run(RecordingSink("c0"), RecordingSink("new")) == EXIT_USAGE
    assert "sinks[1].start: copy" in caplog.text
    assert sorted(found.flushed()) == ["c0"]


@pytest.mark.parametrize("start", ["copy", "end", None])
async def test_start_means_nothing_in_an_empty_folder(tmp_path: Path, start: Any) -> None:
    found = Folder(tmp_path, sink("new", start=start))
    found.settings = _with_sources(found, SHOP)
    new = RecordingSink("new")
    assert await found.run(new, brings=[change()]) == EXIT_OK
    assert new.offsets == [0]


async def test_a_sink_below_the_compacted_entries_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = folder(tmp_path)
    compact(found)
    log = OffsetLog.open(found.path, "new")
    log.write({"": 0})
    log.close()
    assert await found.run(RecordingSink("c0"), RecordingSink("new")) == EXIT_USAGE
    assert "sinks[1]: sink 'new' is at offset 0, and the log is compacted up to 2" in caplog.text


async def test_a_sink_behind_the_end_of_the_log_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = folder(tmp_path)
    found.acknowledge(new=3)
    assert await found.run(RecordingSink("c0"), RecordingSink("new")) == EXIT_USAGE
    assert "sinks[1]: sink 'new' is at offset 3, and the log ends at 2" in caplog.text


async def test_offsets_of_a_sink_without_settings_hold_compaction_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = Folder(tmp_path, sink("c0"), max_segment_bytes=1)
    found.acknowledge(gone=1)
    assert await found.run(RecordingSink("c0"), brings=[change()] * 6) == EXIT_OK
    assert await found.run(RecordingSink("c0")) == EXIT_OK
    assert "`oplog-pipe offset delete gone`" in caplog.text
    assert CommitLog.view(found.path).compacted <= 1


async def test_a_folder_in_use_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = folder(tmp_path)
    log = CommitLog.open(found.path)
    assert await found.run(RecordingSink("c0"), RecordingSink("new")) == EXIT_FAILED
    log.close()
    assert len(caplog.records) == 1


def _with_sources(found: Folder, *sources: SourceSettings) -> Any:
    return replace(found.settings, sources=sources)


CHANGES = [
    ({"namespace": "^user$"}, "namespace"),
    ({"transforms": (FunctionStep("operator:pos"),)}, "transforms"),
    ({"options": CustomOptions("tests:Other")}, "target"),
]


@pytest.mark.parametrize(("change_of", "name"), CHANGES)
async def test_changed_settings_are_refused_until_start_says_what_to_do(
    tmp_path: Path, change_of: dict[str, Any], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = Folder(tmp_path, sink("c0"))
    found.fill(control("reset"), change())
    assert await found.run(RecordingSink("c0")) == EXIT_OK
    found.settings = replace(found.settings, sinks=(sink("c0", **change_of),))
    for _ in range(2):
        assert await found.run(c0 := RecordingSink("c0")) == EXIT_USAGE
        assert c0.calls == []
    assert "sinks[0]: settings of sink 'c0' have changed" in caplog.text
    assert f"which rows go where: {name}." in caplog.text
    for start, copies in (("copy", ["oplog"]), ("end", [])):
        other = Folder(tmp_path / start, sink("c0"))
        other.fill(control("reset"), change())
        assert await other.run(RecordingSink("c0")) == EXIT_OK
        other.settings = replace(other.settings, sinks=(sink("c0", start=start, **change_of),))
        async with other.start(RecordingSink("c0"), brings=[control("live", 0)]) as running:
            await running.sources_or_end()
        assert running.sources is not None
        assert (running.code, running.sources.copies) == (EXIT_OK, copies)
        # The copy that was under way is not whole for the changed settings.
        assert OffsetLog.view(other.path, "c0").not_whole == ["oplog"]
        async with other.start(RecordingSink("c0")) as running:
            await running.sources_or_end()
        assert running.sources is not None
        assert (running.code, running.sources.copies) == (EXIT_OK, [])


async def test_a_changed_source_is_refused_and_a_new_one_or_another_address_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = folder(tmp_path)
    found.acknowledge(new=2)

    async def run(*sources: SourceSettings) -> int:
        found.settings = _with_sources(found, *sources)
        return await found.run(RecordingSink("c0"), RecordingSink("new"))

    assert await run(OPLOG) == EXIT_OK
    assert await run(replace(OPLOG, agents=("http://localhost:2",)), SHOP) == EXIT_OK
    assert await run(replace(OPLOG, namespace="^video$"), SHOP) == EXIT_USAGE
    assert "which rows go where: source oplog." in caplog.text


async def test_settings_are_noted_for_a_folder_of_an_earlier_release(tmp_path: Path) -> None:
    found = Folder(tmp_path, sink("c0"))
    found.fill(change())
    found.acknowledge(c0=0)
    assert await found.run(RecordingSink("c0")) == EXIT_OK
    found.settings = replace(found.settings, sinks=(sink("c0", namespace="^user$"),))
    assert await found.run(RecordingSink("c0")) == EXIT_USAGE


async def test_a_start_closes_files_of_an_earlier_release_to_other_users(tmp_path: Path) -> None:
    found = Folder(tmp_path, sink("c0"))
    found.fill(change())
    (segment,) = found.path.glob("*.log")
    segment.chmod(0o644)
    assert await found.run(RecordingSink("c0")) == EXIT_OK
    assert stat.S_IMODE(segment.stat().st_mode) == 0o600
