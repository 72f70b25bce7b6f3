"""Streams of shards: each operation comes in one shard, and all of an object in the same."""

import json

import pytest

from tests.contract.wire.store_kinds import on_one_store
from tests.kits.contract.shards import SHARDS, one_of_each, shard_of, spread_type
from tests.kits.contract.wire import (
    RESET,
    RawStream,
    Target,
    data_of,
    event_of,
    fresh_type,
    id_of,
    operation,
    said,
)

IDS = [*map(str, range(20)), "é", "a/b", "😀", 'quote"\\', "\u2028", "x" * 1024]


def written(target: Target, type_: str) -> list[bytes]:
    """Store changes of many objects, at the end one of each shard. Return their blocks."""
    operations = [operation("insert", id_, type_, "p") for id_ in IDS]
    operations += [operation("update", id_, type_) for id_ in IDS[::2]]
    operations += [operation("delete", id_, type_) for id_ in IDS[::5]]
    operations += [operation("insert", id_, type_) for id_ in one_of_each(f"{type_}/")]
    with target.follow(types=type_) as stream:
        target.store(*operations)
        return stream.take(len(operations))


def of_shard(blocks: list[bytes], shard: str) -> list[bytes]:
    return [block for block in blocks if shard_of(object_of(block)) == shard]


def object_of(block: bytes) -> str:
    data = data_of(block)
    return f"{data['type']}/{data['id']}"


def states(stream: RawStream, type_: str) -> list[tuple[str, str]]:
    """Return the states of a type up to ``live``."""
    blocks = stream.until("live")[:-1]
    return [said(each) for each in blocks if event_of(each) != "reset" and has(each, type_)]


def has(block: bytes, type_: str) -> bool:
    return bool(data_of(block)["type"] == type_)


@pytest.mark.parametrize("filtered", [False, True], ids=["alone", "with a filter"])
def test_each_operation_comes_in_the_shard_of_its_object_from_every_start(
    target: Target, filtered: bool
) -> None:
    type_ = spread_type(IDS, 3)
    narrowed = {"types": type_} if filtered else {}
    with target.follow() as everything:
        target.store(operation("insert", "before", fresh_type()))
        before = id_of(everything.block())
    live = {shard: target.follow(shard=shard, **narrowed) for shard in SHARDS}
    blocks = written(target, type_)
    last = {said(block)[1]: block for block in blocks}
    for shard, stream in live.items():
        wanted = of_shard(blocks, shard)
        assert len(wanted) > 3
        with stream:
            assert stream.take(len(wanted)) == wanted
        for place, block in enumerate([b"", *wanted[:-1]]):
            start = id_of(block) if block else before
            with target.follow(start, shard=shard, **narrowed) as resumed:
                assert resumed.take(len(wanted) - place) == wanted[place:]
        newest = [block for block in wanted if last[said(block)[1]] == block]
        with target.follow("0", shard=shard, **narrowed) as copy:
            assert states(copy, type_) == [
                ("insert", said(block)[1]) for block in newest if event_of(block) != "delete"
            ]
        with target.follow("1", shard=shard, **narrowed) as changes:
            assert sorted(states(changes, type_)) == sorted(
                ("delete" if event_of(block) == "delete" else "insert", said(block)[1])
                for block in newest
            )


def test_the_first_readers_of_shards_get_theirs_of_what_memory_has(target: Target) -> None:
    total = 5
    with target.follow() as everything:
        target.store(operation("insert", "before", fresh_type()))
        before = id_of(everything.block())
        blocks = written(target, fresh_type())
        for number in range(total):
            shard = f"{number}/{total}"
            wanted = [block for block in blocks if shard_of(object_of(block), total) == shard]
            with target.follow(before, shard=shard) as stream:
                assert stream.take(len(wanted)) == wanted


def test_reset_live_and_checkpoints_come_in_a_shard_without_operations(target: Target) -> None:
    type_ = fresh_type()
    target.store(operation("insert", "a", type_))
    number = (int(shard_of(f"{type_}/a", 256).partition("/")[0]) + 1) % 256
    with target.follow("0", shard=f"{number}/256", types=type_) as stream:
        reset, live = stream.take(2)
        assert (reset, event_of(live)) == (RESET, "live")
    with target.follow(types=type_) as stream:
        target.store(operation("update", "a", type_))
        newest = id_of(stream.block())
    query = {"shard": f"{number}/256", "types": type_, "checkpoint": "1"}
    with target.follow(id_of(live), **query) as stream:
        assert [id_of(block) for block in stream.take(2)] == [id_of(live), newest]


@on_one_store
def test_one_shard_of_one_is_everything(target: Target) -> None:
    type_ = fresh_type()
    with target.follow(shard="0/1") as stream:
        blocks = written(target, type_)
        assert stream.take(len(blocks)) == blocks


@on_one_store
def test_the_shard_does_not_depend_on_how_an_operation_is_written(target: Target) -> None:
    """The type is in lower case, and escapes in JSON are no part of an id."""
    type_ = "Ä" + fresh_type().upper()
    shard = shard_of(f"{type_.lower()}/é")
    with target.follow(shard=shard) as stream:
        for text in ("é", "\\u00e9"):
            raw = f'{{"event":"insert","type":{json.dumps(type_)},"id":"{text}"}}'
            assert target.post(raw.encode()).status == 204
        assert [said(block) for block in stream.take(2)] == [("insert", "é")] * 2
