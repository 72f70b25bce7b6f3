"""The parser against the agent's own frames, cut anywhere."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogc.errors import ProtocolError
from oplogc.sse import MAX_BLOCK_BYTES, Block, BlockParser

_text = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=20)
_blocks = st.lists(
    st.builds(Block, id=st.from_regex(r"\A([0-9]{1,13}|[0-9a-f]{24})\Z"), event=st.just("insert"), data=_text),
    max_size=8,
)


@given(_blocks, st.data())
def test_any_split_of_the_bytes_gives_the_same_blocks(blocks: list[Block], data: st.DataObject) -> None:
    raw = b""
    for block in blocks:
        raw += b":\n" * data.draw(st.integers(0, 2))
        raw += f"id: {block.id}\nevent: {block.event}\ndata: {block.data}\n\n".encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=12)))
    parser = BlockParser()
    got = [block for a, b in pairwise([0, *cuts, len(raw)]) for block in parser.feed(raw[a:b])]
    assert got == blocks


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (b"id: 1\nevent: reset\ndata:\n\n", [Block("1", "reset", "")]),
        (b"id: 1\nevent: reset\n\n", [Block("1", "reset", "")]),
        (b"id:5\n\n", [Block("5")]),
        (b":\n:\n\n\n", []),
        (b"event: live\nid: 7\nretry: 5\nnew: x\n\n", [Block("7", "live")]),
        (b"data: a\ndata: b\n\n", [Block("", "", "a\nb")]),
        (b"id: 1\nevent: cut off\n", []),
    ],
)
def test_lines_of_a_block(raw: bytes, wanted: list[Block]) -> None:
    assert BlockParser().feed(raw) == wanted


def test_heartbeats_without_end_cost_no_memory_and_are_counted() -> None:
    parser = BlockParser()
    for _ in range(1000):
        assert parser.feed(b":\n" * 1000) == []
    assert parser.comments == 1_000_000
    assert parser.feed(b"id: 1\n\n") == [Block("1")]


@pytest.mark.parametrize(
    "raw", [b"data: \xff\n", b"x" * (MAX_BLOCK_BYTES + 1), b"data: 1\n" * (MAX_BLOCK_BYTES // 7 + 1)]
)
def test_what_is_no_event_stream_is_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        BlockParser().feed(raw)
