"""A text in shared memory: whole at any time, also when its writer dies while it writes."""

import mmap

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


def test_a_text_that_is_too_long_is_refused_and_the_old_one_stays(memory: memoryview) -> None:
    page = Page(memory)
    page.write(b"x" * page.room)
    with pytest.raises(ValueError, match="more than the page holds"):
        page.write(b"y" * (page.room + 1))
    assert page.read() == b"x" * page.room
