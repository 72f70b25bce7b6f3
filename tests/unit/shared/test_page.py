"""A text in shared memory: whole at any time, also when its writer dies while it writes."""

import itertools
import mmap
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from oplogd.shared.page import Page


@pytest.fixture
def memory() -> memoryview:
    return memoryview(mmap.mmap(-1, 4096))


def test_another_process_reads_the_newest_text(memory: memoryview) -> None:
    writer, reader = Page(memory), Page(memory)
    assert reader.read() == b""
    for text in (b"one", b"longer", b"", b"two"):
        writer.write(text)
        assert reader.read() == text
    Page(memory).write(b"of the next process")
    assert reader.read() == b"of the next process"


def test_a_torn_text_leaves_the_one_before(memory: memoryview) -> None:
    page = Page(memory)
    page.write(b"first")
    page.write(b"second")
    at = bytes(memory).index(b"second")
    memory[at] ^= 1
    assert page.read() == b"first"
    page.write(b"third")
    assert page.read() == b"third"


class OvertakenPage(Page):
    """Its writer goes on after the first half is read. ``steps``: of the writer, one per read."""

    steps: Iterator[Callable[[], None]]

    def _text(self, half: memoryview) -> tuple[int, bytes] | None:
        found = super()._text(half)
        for step in self.steps:
            step()
            break
        return found


@pytest.mark.parametrize("is_first_torn", [True, False], ids=["both torn", "an old text read"])
def test_a_reader_between_two_writes_reads_the_newest_text(
    memory: memoryview, is_first_torn: bool
) -> None:
    """The first half is read before a write, and the second one during the next write."""
    writer = Page(memory)
    for text in (b"text 1", b"text 2", b"text 3"):
        writer.write(text)
    start = bytes(memory).index(b"text 2")

    def tear(text: bytes) -> None:
        memory[bytes(memory).index(text)] ^= 1

    def complete_and_begin() -> None:
        if is_first_torn:
            memory[start] ^= 1
        writer.write(b"text 4")
        tear(b"text 3")

    if is_first_torn:
        tear(b"text 2")
    reader = OvertakenPage(memory)
    reader.steps = iter([complete_and_begin])
    assert reader.read() == b"text 4"


def test_a_reader_that_is_overtaken_again_and_again_gives_up(memory: memoryview) -> None:
    writer, reader = Page(memory), OvertakenPage(memory)
    reader.steps = (partial(writer.write, b"%d" % number) for number in itertools.count())
    assert int(reader.read()) < 20 == int(writer.read()) + 1


def test_a_text_that_is_too_long_is_refused_and_the_old_one_stays(memory: memoryview) -> None:
    page = Page(memory)
    page.write(b"x" * page.room)
    with pytest.raises(ValueError, match="more than the page holds"):
        page.write(b"y" * (page.room + 1))
    assert page.read() == b"x" * page.room
