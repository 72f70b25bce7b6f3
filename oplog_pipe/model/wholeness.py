"""Whether a sink has got all of a copy. No I/O.

The end of a copy removes the objects the copy did not bring. After a missing message, the sink
would remove an object of the source.
"""

from collections.abc import Iterable


class Wholeness:
    """The rule for one sink.

    - ``since``: the sink has got every message behind this offset; -1: all.
    - ``not_whole``: sources whose last copy was not whole.
    """

    def __init__(self, since: int, not_whole: Iterable[str] = ()) -> None:
        self.since = since
        self.not_whole = frozenset(not_whole)

    def miss(self, offset: int) -> None:
        """Note the offset of an entry the sink never gets."""
        self.since = max(self.since, offset)

    def end(self, source: str, begin: int) -> bool:
        """Return whether an ending copy is whole. ``begin``: offset of its entry ``reset``."""
        is_whole = self.since < begin
        self.not_whole = self.not_whole - {source} if is_whole else self.not_whole | {source}
        return is_whole
