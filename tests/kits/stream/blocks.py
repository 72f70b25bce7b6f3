"""The blocks of an event stream, read as strictly as the first client reads them."""

from typing import NamedTuple

from oplogd.model.event_id import parse_position


class Block(NamedTuple):
    id: str
    event: str
    data: str


def parse(chunk: bytes) -> list[Block]:
    """Return the whole blocks: id, event, data, in this order, with bare line feeds."""
    blocks = []
    *texts, rest = chunk.decode().split("\n\n")
    assert rest == "", "a chunk ends within a block"
    for text in texts:
        lines = text.split("\n")
        assert lines[0].startswith("id: ")
        parse_position(lines[0][4:])
        if len(lines) == 1:
            blocks.append(Block(lines[0][4:], "", ""))
            continue
        _, event, data = lines
        assert event.startswith("event: ")
        assert data == "data:" or data.startswith("data: ")
        blocks.append(Block(lines[0][4:], event[7:], data[6:]))
    return blocks
