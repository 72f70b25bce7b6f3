"""The parser against the agent's own frames, cut anywhere."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogc.wire.errors import ProtocolError
from oplogc.wire.sse import MAX_BLOCK_BYTES, Block, BlockParser

_text = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=20)
_blocks = st.lists(
    st.builds(
        Block,
        id=st.from_regex(r"\A([0-9]{1,13}|[0-9a-f]{24})\Z"),
        event=st.just("insert"),
        data=_text,
        has_id=st.just(True),
    ),
    max_size=8,
)


@given(_blocks, st.sampled_from(["\n", "\r\n", "\r"]), st.booleans(), st.data())
def test_any_split_of_the_bytes_gives_the_same_blocks(
    blocks: list[Block], end: str, bom: bool, data: st.DataObject
) -> None:
    raw = b"\xef\xbb\xbf" if bom else b""
    for block in blocks:
        raw += f":{end}".encode() * data.draw(st.integers(0, 2))
        raw += f"id: {block.id}{end}event: {block.event}{end}data: {block.data}{end}{end}".encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=12)))
    parser = BlockParser()
    got = [block for a, b in pairwise([0, *cuts, len(raw)]) for block in parser.feed(raw[a:b])]
    assert got == blocks


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_block_is_there_as_soon_as_its_blank_line_began(end: bytes) -> None:
    parser = BlockParser()
    raw = end.join([b"id: 1", b"data: \xc3\xa9", b"", b""])[: None if len(end) == 1 else -1]
    got = [list(parser.feed(bytes([byte]))) for byte in raw]
    assert got[-1] == [Block("1", "", "\xe9")]
    assert not any(got[:-1])
    assert list(parser.feed(b"\n" * (len(end) - 1) + b"id: 2\n\n")) == [Block("2")]


def test_the_blocks_before_a_broken_one_are_returned() -> None:
    fed = BlockParser().feed(b"id: 1\n\nid: 2\n\ndata: \xff\n\nid: 3\n\n")
    assert [next(fed), next(fed)] == [Block("1"), Block("2")]
    with pytest.raises(ProtocolError, match="UTF-8"):
        next(fed)


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (b"id: 1\nevent: reset\ndata:\n\n", [Block("1", "reset", "")]),
        (b"id: 1\nevent: reset\n\n", [Block("1", "reset", "")]),
        (b"id:5\n\n", [Block("5")]),
        (b":\n:\n\n\n", []),
        (b"event: live\nid: 7\nretry: 5\nnew: x\n\n", [Block("7", "live")]),
        (b"data: a\ndata: b\n\n", [Block("", "", "a\nb", has_id=False)]),
        (
            b"id: 7\nevent: live\n\nevent: live\n\n",
            [Block("7", "live"), Block("7", "live", has_id=False)],
        ),
        (b"data:x\ndata\ndata:  y\n\n", [Block("", "", "x\n\n y", has_id=False)]),
        (b"id: 1\r\nevent: live\rdata: a\n\r\n", [Block("1", "live", "a")]),
        (b"id: 1\r\rid: 2\n\rid: 3\r\n\n", [Block("1"), Block("2"), Block("3")]),
        (b"\xef\xbb\xbfid: 1\n\n", [Block("1")]),
        (b"\xef\xbb\xbf\xef\xbb\xbfid: 1\nevent: live\n\n", [Block("", "live", has_id=False)]),
        (b"\nid: 1\n\n", [Block("1")]),
        (b"id: 1\nevent: cut off\n", []),
    ],
)
def test_lines_of_a_block(raw: bytes, wanted: list[Block]) -> None:
    assert list(BlockParser().feed(raw)) == wanted


def test_heartbeats_without_end_cost_no_memory_and_are_counted() -> None:
    parser = BlockParser()
    for _ in range(1000):
        assert list(parser.feed(b":\n" * 1000)) == []
    assert parser.comments == 1_000_000
    assert list(parser.feed(b"id: 1\n\n")) == [Block("1")]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "raw",
    [b"data: \xff\n", b"x" * (MAX_BLOCK_BYTES + 1), b"data: 1\n" * (MAX_BLOCK_BYTES // 7 + 1)],
)
def test_what_is_no_event_stream_is_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(BlockParser().feed(raw))


@pytest.mark.parametrize(
    "raw",
    [
        b"id: 1\nevent: insert\ndata: {}\n\n" * 3,
        "id:  1 \nevent: é\ndata: ☃\n\n".encode() * 2,
        b"id: 1\nevent: a\ndata: x\ndata: y\n\nid: 2\nevent: b\ndata: z\n\n",
        b"id: 1\nevent: a\ndata: x\n\nretry: 3\nid: 2\nevent: b\ndata: z\n\n:\nid: 3\n\n",
        b"retry: 3\nid: 2\nevent: b\ndata: z\n\nid: 4\nevent: b\ndata: z\n\nevent: c\n\n",
        b"id: 1\nevent: a\ndata: x\n\ndata: \xff\n\n",
        b"id: 1\nevent: a\ndata: x\n\nid: 2\nevent: a\ndata: \xff\n\n",
    ],
)
def test_blocks_that_come_in_pieces_are_those_that_come_byte_by_byte(raw: bytes) -> None:
    def read(pieces: list[bytes]) -> tuple[list[Block], int, bool]:
        parser, blocks = BlockParser(), []
        try:
            for piece in pieces:
                for block in parser.feed(piece):
                    blocks.append(block)
        except ProtocolError:
            return blocks, parser.comments, False
        return blocks, parser.comments, True

    wanted = read([raw[at : at + 1] for at in range(len(raw))])
    for at in range(len(raw)):
        assert read([raw[:at], raw[at:]]) == wanted
