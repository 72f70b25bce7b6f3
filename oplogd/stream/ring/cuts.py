"""Blocks of several messages, cut to the messages of one shard. No I/O."""

from collections import OrderedDict
from typing import NamedTuple

from oplogd.model.shard import Shard
from oplogd.stream.ring.frames import hash_of_frame

# Most bytes of cached blocks.
_CACHED_BYTES = 2 << 20

# Memory of a cut besides its bytes.
_CUT_BYTES = 200

_END = b"\n\n"


class Cut(NamedTuple):
    """``events``: the number of messages in the block."""

    block: bytes
    events: int


_NOTHING = Cut(b"", 0)


class Cuts:
    """Cuts blocks. Readers of all shards ask for the same blocks: these are cut once.

    ``size``: bytes of memory.
    """

    def __init__(self) -> None:
        # The cuts of a block for a total, by the number of the shard. The last used comes last.
        self._cut: OrderedDict[tuple[int, bytes], dict[int, Cut]] = OrderedDict()
        self.size = 0

    def cut(self, block: bytes, shard: Shard) -> Cut:
        """Return the messages of a shard in a block."""
        key = shard.total, block
        numbers = self._cut.get(key)
        if numbers is not None:
            self._cut.move_to_end(key)
            return numbers.get(shard.number, _NOTHING)
        frames = [frame + _END for frame in block.split(_END)[:-1]]
        if len(frames) == 1:
            return Cut(block, 1) if shard.has(hash_of_frame(block)) else _NOTHING
        found: dict[int, list[bytes]] = {}
        for frame in frames:
            found.setdefault(hash_of_frame(frame) % shard.total, []).append(frame)
        numbers = {number: Cut(b"".join(some), len(some)) for number, some in found.items()}
        self._keep(key, numbers)
        return numbers.get(shard.number, _NOTHING)

    def _keep(self, key: tuple[int, bytes], numbers: dict[int, Cut]) -> None:
        self._cut[key] = numbers
        self.size += _size(key[1], numbers)
        while self.size > _CACHED_BYTES:
            (_, block), oldest = self._cut.popitem(last=False)
            self.size -= _size(block, oldest)


def _size(block: bytes, numbers: dict[int, Cut]) -> int:
    return 2 * len(block) + _CUT_BYTES * (1 + len(numbers))
