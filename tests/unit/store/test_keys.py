"""Keys of the objects that a selection names: few are made, many are searched by their types."""

from oplogd.store.objects import keys_of
from oplogd.stream.ring.filters import Filter

TYPES = frozenset({"a", "b"})


def test_up_to_10_000_keys_are_made_of_types_and_ids() -> None:
    ids = frozenset(map(str, range(5_000)))
    keys = keys_of(Filter(types=TYPES, ids=ids))
    assert keys is not None
    assert (len(keys), keys[0], keys[-1]) == (10_000, "a/0", "b/999")
    assert keys_of(Filter(types=TYPES, ids=ids), "b/997") == ["b/998", "b/999"]
    assert keys_of(Filter(types=TYPES, ids=ids | {"x"})) is None
    assert keys_of(Filter(types=TYPES)) is None
    assert keys_of(Filter(ids=ids)) is None
