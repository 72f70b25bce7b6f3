"""Which sinks give up their place when the commit log has reached its bound. No I/O."""

from collections.abc import Sequence
from typing import NamedTuple


class Holder(NamedTuple):
    """A sink, and its flushed offset. ``stays``: why it keeps its place; None: it gives it up."""

    name: str
    offset: int
    stays: str | None


class GiveUp(NamedTuple):
    """These sinks give up all entries up to an offset."""

    names: list[str]
    offset: int


class Wait(NamedTuple):
    """The sources wait for sinks, for these reasons."""

    reasons: list[str]


def decide(closed: Sequence[int], holders: Sequence[Holder]) -> GiveUp | Wait | None:
    """Return what to do for the oldest held segment. None: no segment is held.

    ``closed``: the newest offset of each closed segment, ascending. A sink behind a held
    segment never gives up its place. Others give up as much as no other sink needs: each of
    them needs a copy in any case.
    """
    lowest = min((each.offset for each in holders), default=None)
    held = [newest for newest in closed if lowest is not None and newest > lowest]
    if not held:
        return None
    holding = [each for each in holders if each.offset < held[0]]
    if reasons := [each.stays for each in holding if each.stays is not None]:
        return Wait(reasons)
    others = [each.offset for each in holders if each.offset >= held[0]]
    free = [newest for newest in held if newest <= min(others, default=newest)]
    return GiveUp([each.name for each in holding], free[-1])
