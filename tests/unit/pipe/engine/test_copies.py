"""Random histories of pipes that share targets: a copy removes only what is gone at its source."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplog_pipe.message import Message
from oplog_pipe.model.wholeness import Wholeness
from tests.kits.models.properties import examples
from tests.kits.pipe.copies import (
    IDS,
    TYPES,
    ModelPipe,
    PipeSink,
    Places,
    Row,
)
from tests.kits.pipe.stores import Key, Store

_ROUNDS = 1000
STRANGER = Row("stranger/x", 1 << 62, "oplog", -1)
LEGACY = Row(None, 1, "oplog", -2)


class History:
    """``told``: the steps, for a failure."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.told: list[object] = []
        self.places: Places = {
            name: {"stranger": STRANGER, "legacy": LEGACY} for name in (*TYPES, "all")
        }
        if random.random() < 0.3:
            self.places["video"]["a"] = STRANGER
        self.value = 0
        self.ms = 1_700_000_000_000
        self.sick: set[int] = set()
        self.stores = [Store(), Store()]
        for _ in range(4):
            self.change()
        self.names = (f"sink{number}" for number in range(100))
        self.pipes = [self.pipe("p"), self.pipe("q")]

    def pipe(self, name: str) -> ModelPipe:
        sinks = [self.sink() for _ in range(self.random.randint(1, 2))]
        return ModelPipe(
            name,
            self.random.choice(self.stores),
            sinks,
            self.places,
            self.random,
            self.clock,
            lambda message: message.data in self.sick,
            self.random.choice([None, 400, 1_000]),
        )

    def clock(self) -> int:
        self.ms += 1
        return self.ms

    def sink(self) -> PipeSink:
        random = self.random
        drops = random.choice([None, "a"])
        renames = random.random() < 0.3

        def change(message: Message) -> Message | None:
            if message.id == drops:
                return None
            if renames:
                message.namespace = "user"
            return message

        types = random.choice([*TYPES] if renames else [*TYPES, "video|user"])
        shares = types != "video|user" and random.random() < 0.3

        def place(message: Message) -> str:
            return "all" if shares else message.namespace

        return PipeSink(
            next(self.names), types, place, change, random.random() < 0.7, random.random() < 0.5
        )

    def change(self) -> None:
        store = self.random.choice(self.stores)
        key = (self.random.choice(TYPES), self.random.choice(IDS))
        self.value += 1
        if self.random.random() < 0.1:
            self.sick.add(self.value)
        is_gone = self.random.random() < 0.3 and key in store.live
        store.change(key, None if is_gone else self.value)

    def step(self) -> None:
        random = self.random
        pipe = random.choice(self.pipes)
        sink = random.choice(pipe.sinks)
        match random.choices(
            [
                *("change", "receive", "run", "die", "ack", "lose", "store", "add", "copy"),
                *("reset", "witness", "backup", "restore", "target"),
            ],
            [10, 12, 8, 3, 1, 0.5, 1, 1, 1, 0.7, 2, 1, 1, 4],
        )[0]:
            case "change":
                self.change()
            case "receive":
                dies_after = random.randint(1, 12) if random.random() < 0.2 else None
                pipe.receive(random.randint(1, 6), dies_after)
            case "run":
                pipe.run(sink)
            case "die":
                pipe.run(sink, random.randint(1, 5))
            case "ack":
                pipe.acknowledge_next(sink)
            case "lose":
                pipe.lose_folder()
            case "store":
                pipe.replace_store(random.choice(self.stores))
            case "witness":
                pipe.source.renew_witness()
            case "backup":
                pipe.store.back_up()
            case "restore":
                pipe.store.restore()
                for each in self.pipes:
                    if each.store is pipe.store:
                        each.replace_store(pipe.store)
            case "add" if len(pipe.sinks) < 3:
                pipe.add(self.sink(), random.choice(["first", "end", "copy"]))
            case "copy":
                pipe.source.restart()
            case "target":
                sink.is_down = not sink.is_down
            case "reset":
                offsets, _ = pipe.state(sink)
                if offsets.offset is not None:
                    pipe.reset(sink, offsets.offset + random.randint(-5, 3))

    def finish(self) -> None:
        """Bring everything to its end. A sink that refuses a message is made to pass over it."""
        for pipe in self.pipes:
            for sink in pipe.sinks:
                sink.is_down = False
            for _ in range(_ROUNDS):
                pipe.receive(10)
                for sink in pipe.sinks:
                    self._run_to_the_end(pipe, sink)
                if pipe.source.is_at_end:
                    break
            else:
                raise AssertionError("a copy begins again and again")

    def _run_to_the_end(self, pipe: ModelPipe, sink: PipeSink) -> None:
        while True:
            pipe.run(sink)
            offsets, log = pipe.state(sink)
            if offsets.offset == log.end - 1:
                return
            pipe.acknowledge_next(sink)

    def check(self) -> int:
        """Compare targets with sources. Return the number of sinks that are exact."""
        for rows in self.places.values():
            assert (rows["stranger"], rows["legacy"]) == (STRANGER, LEGACY)
        exact = 0
        for pipe in self.pipes:
            for sink in pipe.sinks:
                exact += self._check(pipe, sink)
        return exact

    def _check(self, pipe: ModelPipe, sink: PipeSink) -> bool:
        me = f"{pipe.name}/{sink.name}"
        found = {
            (place, id): row.value
            for place, rows in self.places.items()
            for id, row in rows.items()
            if row.owner == me
        }
        expected = {
            row: value
            for key, value in pipe.store.live.items()
            if (row := sink.row(key)) is not None
        }
        offsets, _ = pipe.state(sink)
        begins = [offset for offset, _, record in pipe.entries if record.op == "reset"]
        assert offsets.copy_due >= 0 or begins[-1] > sink.given_up, "its copy is forgotten"
        is_told = bool(offsets.not_whole) or offsets.copy_due >= 0
        if not is_told and offsets.whole_since < begins[-1]:
            assert found == expected
            return True
        written = {
            row: value
            for row, value in expected.items()
            if self._was_written(pipe, sink, row, value)
        }
        assert written.items() <= found.items()
        return False

    def _was_written(self, pipe: ModelPipe, sink: PipeSink, row: Key, value: int) -> bool:
        """Return whether the sink has got a value. Each value is given once to an object."""
        got = False
        for offset, key, record in pipe.entries:
            if record.op in ("reset", "live") or sink.row((key, record.id)) != row:
                continue
            is_gone = record.op == "delete" or offset < sink.first
            got = not (is_gone or offset in sink.missed) and bytes(record.data) == b"%d" % value
        return got


@pytest.mark.thorough
@examples(2)
@given(st.integers(0, 1 << 32))
def test_every_target_equals_its_source_or_is_told_not_to_be_whole(seed: int) -> None:
    history = History(seed)
    for _ in range(history.random.randint(5, 40)):
        history.step()
    history.finish()
    history.check()


def test_most_histories_end_with_exact_targets() -> None:
    exact = total = given_up = 0
    for seed in range(20):
        history = History(seed)
        for _ in range(25):
            history.step()
        history.finish()
        exact += history.check()
        total += sum(len(pipe.sinks) for pipe in history.pipes)
        given_up += sum(pipe.given_up for pipe in history.pipes)
    assert exact > total / 4
    assert given_up > 0


def test_a_copy_is_whole_if_nothing_was_missed_since_its_begin() -> None:
    rule = Wholeness(4)
    assert rule.end("a", 5)
    assert not rule.end("a", 4)
    assert not rule.end("b", 3)
    assert rule.not_whole == {"a", "b"}
    rule.miss(9)
    rule.miss(6)
    assert not rule.end("a", 9)
    assert rule.end("b", 10)
    assert (rule.since, set(rule.not_whole)) == (9, {"a"})
