"""A process is killed in the middle of a call under a pointer in a SQLite file."""

from pathlib import Path

from tests.e2e.pointers.pointer_process import MESSAGES, POINTER, calls
from tests.kits.processes.stopping import stopped
from tests.kits.store.messages import NAME
from tests.kits.store.pointing import committed, kinds_in, uncommitted
from tests.kits.store.sqlite_files import count, opened

Kinds = list[tuple[str, int | None]]
# Kinds and pointers of the entries, stored messages, messages that readers see.
Result = tuple[Kinds, int, list[str]]


async def test_a_call_that_was_killed_before_its_commit_has_not_happened_and_can_be_repeated(
    tmp_path: Path,
) -> None:
    path = tmp_path / "oplog.db"
    numbers = [*map(str, range(MESSAGES))]
    direct: Kinds = [("direct", POINTER)] * MESSAGES
    void: Kinds = [("void", None)] * (MESSAGES + 2)
    async with opened(path) as store:
        topic = await store.topics.create(NAME, None)
        by_step = calls(store, topic.log)
        expected: dict[str, Result] = {
            "publish": (direct, 0, numbers),
            "store": (direct, MESSAGES, numbers),
            "publish_stored": ([*direct, ("publish", POINTER)], MESSAGES, numbers * 2),
            "rollback": (void, 0, []),
            "decide": ([*void, ("commit", None)], 0, []),
        }
        before: Result = ([], 0, [])
        for step, after in expected.items():
            with stopped(
                "tests.e2e.pointers.pointer_process", path, topic.log, step, line=b"stopped\n"
            ):
                pass
            for result in (before, after):
                assert await kinds_in(store, topic) == result[0]
                assert count(path, "stored") == result[1]
                assert await uncommitted(store, topic, page=MESSAGES) == result[2]
                if result is before:
                    await by_step[step]()
            before = after
        assert (await committed(store, topic)).held_by is None
