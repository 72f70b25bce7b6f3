"""The copies of a state are alike, however late they catch up and wherever a writer is killed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.shared.journal import Copy, Journal
from tests.kits.models.properties import examples


class Changes:
    """A state that remembers the changes. ``loads``: how often it was loaded."""

    def __init__(self) -> None:
        self.all: list[bytes] = []
        self.loads = 0

    def load(self, snapshot: bytes) -> None:
        self.loads += 1
        self.all = snapshot.split(b",")

    def dump(self) -> bytes:
        return b",".join(self.all)

    def shrink(self) -> None:
        self.all = self.all[-1:]

    def apply(self, change: bytes) -> None:
        self.all.append(change)


class Member:
    def __init__(self, journal: Journal) -> None:
        self.state = Changes()
        self.copy = Copy(journal, self.state)

    def add(self, change: bytes) -> None:
        with self.copy.turn():
            self.copy.change(change)

    @property
    def seen(self) -> list[bytes]:
        with self.copy.turn():
            return list(self.state.all)


@examples()
@given(
    writers=st.lists(st.integers(0, 2), max_size=60),
    most=st.integers(20, 60),
    snapshot=st.sampled_from([40, 4_096]),
)
def test_all_copies_are_alike(writers: list[int], most: int, snapshot: int) -> None:
    """In a journal with snapshots of a few changes, which forget some or none."""
    journal = Journal(most, snapshot)
    members = [Member(journal) for _ in range(3)]
    for number, writer in enumerate(writers):
        members[writer].add(b"%d" % number)
        # A copy that never writes catches up late.
        if number % 17 == 0:
            assert members[2].seen == members[writer].seen
    expected = members[0].seen
    assert all(each.seen == expected for each in (*members, Member(journal)))
    if snapshot == 4_096:
        assert expected == [b"%d" % number for number in range(len(writers))]


def test_a_copy_that_is_one_snapshot_behind_reads_on_and_loads_nothing() -> None:
    journal = Journal(changes=50)
    writer, reader = Member(journal), Member(journal)
    for number in range(10, 30):
        writer.add(b"%d" % number)
        assert reader.copy.is_current is False
        assert reader.seen == writer.state.all
    assert journal.end[0] > 1
    assert (reader.state.loads, writer.state.loads) == (0, 0)
    newcomer = Member(journal)
    assert newcomer.seen == writer.seen
    assert newcomer.state.loads == 1


class KilledError(Exception):
    """Stands for a kill in the middle of a write."""


@pytest.mark.parametrize("word", range(5))
def test_a_writer_killed_at_any_word_of_a_snapshot_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, word: int
) -> None:
    """``word``: how many words of the area it writes. The next snapshot is whole again."""
    journal = Journal(changes=50)
    writer, late, late_twice, behind = (Member(journal) for _ in range(4))
    written = []
    for number in range(10, 99):
        before = journal.end[0]
        if before == 1:
            late.seen  # noqa: B018 - it catches up to the first snapshot
            if not behind.state.all:
                behind.seen  # noqa: B018 - it never reads the last changes before the second one
        written.append(b"%d" % number)
        writer.add(written[-1])
        if before == 2 and journal.end[1] + 6 > journal.most_changes:
            break
    assert journal.end[0] == 2
    area: Any = journal._areas[1]
    words = area._words

    class Dying:
        left = word

        def __setitem__(self, place: int, value: int) -> None:
            if not self.left:
                raise KilledError
            self.left -= 1
            words[place] = value

        def __getitem__(self, place: int) -> int:
            value: int = words[place]
            return value

    area._words = Dying()
    try:
        writer.add(b"x")
    except KilledError:
        area._words = words
        for each in (late, late_twice, behind, Member(journal)):
            assert each.seen == written
        late.add(b"y")
        assert Member(journal).seen == [*written, b"y"]
    else:
        assert word == 4
        area._words = words
        assert late.seen == [*written, b"x"]
