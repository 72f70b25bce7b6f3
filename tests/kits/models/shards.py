"""Shards for properties: those of a few numbers, and none."""

from hypothesis import strategies as st

from oplogd.model.shard import Shard

MOST = 3


def _of(total: int) -> st.SearchStrategy[Shard]:
    return st.builds(Shard, st.integers(0, total - 1), st.just(total))


shards: st.SearchStrategy[Shard | None] = st.none() | st.integers(1, MOST).flatmap(_of)
