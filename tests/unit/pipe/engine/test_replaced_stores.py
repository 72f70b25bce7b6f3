"""Random histories of one source whose stores are replaced, restored and cut off at any moment."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplog_pipe.follow.checkpoints import Witness
from oplog_pipe.model.record import decode_record
from tests.kits.models.properties import examples
from tests.kits.pipe.stores import Key, Source, Store

KEYS = [("video", each) for each in "abcdefghij"]


class History:
    """``objects``: what a target has that writes all entries."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.value = 0
        self.stores = [Store(), Store()]
        for _ in range(25):
            self.change()
        self.source = Source(self.stores[0])
        self.end = 0
        self.objects: dict[Key, int] = {}

    def change(self) -> None:
        store = self.random.choice(self.stores)
        self.value += 1
        is_gone = self.random.random() < 0.2
        store.change(self.random.choice(KEYS), None if is_gone else self.value)

    def receive(self, count: int) -> None:
        for entry in self.source.take(self.end, count):
            self.end += 1
            record = decode_record(entry.data)
            if record.op == "reset":
                self.objects.clear()
            elif record.op == "delete":
                self.objects.pop((entry.key, record.id), None)
            elif record.op != "live":
                self.objects[entry.key, record.id] = int(bytes(record.data))

    def step(self) -> None:
        source, random = self.source, self.random
        match random.choices(
            ["change", "receive", "witness", "backup", "restore", "replace", "copy"],
            [6, 8, 2, 3, 1, 0.3, 1],
        )[0]:
            case "change":
                self.change()
            case "receive":
                self.receive(random.randint(1, 2))
            case "witness":
                source.renew_witness()
            case "backup":
                source.store.back_up()
            case "restore":
                source.store.restore()
                source.reconnect(source.store)
            case "replace":
                source.reconnect(random.choice(self.stores))
            case "copy":
                source.restart()


@examples(4)
@given(st.integers(0, 1 << 32))
def test_a_target_equals_the_store_that_the_source_follows_at_the_end(seed: int) -> None:
    history = History(Random(seed))
    for _ in range(history.random.randint(5, 60)):
        history.step()
    while not history.source.is_at_end:
        history.receive(10)
    assert history.objects == history.source.store.live


@pytest.mark.parametrize(
    ("witness", "position", "resumed"),
    [
        ("900", "1000", "900"),
        ("900", "899", "899"),
        ("900", "545b55c7f095528dd0f38600", "900"),
        ("545b55c7f095528dd0f38600", "545b55c7f095528dd0f38601", "545b55c7f095528dd0f38601"),
    ],
)
def test_a_source_resumes_at_the_time_of_its_witness_or_before_it(
    witness: str, position: str, resumed: str
) -> None:
    assert Witness(witness, "545b55c7f095528dd0f386ff").before(position) == resumed


def test_a_witness_is_needed_until_the_source_has_reached_its_head_behind_live() -> None:
    ids = [f"545b55c7f095528dd0f3860{number}" for number in range(3)]
    assert [Witness(ids[0], ids[1]).is_reached(each) for each in ids] == [False, True, True]
    assert not Witness("900", ids[1]).is_reached(ids[2])
