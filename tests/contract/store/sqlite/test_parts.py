"""Appends that are larger than one statement of SQLite."""

from oplogd.store.sqlite.file.parts import STATEMENT_BYTES, STATEMENT_OPERATIONS, parts

MOST, BYTES = STATEMENT_OPERATIONS, STATEMENT_BYTES


def lengths(sizes: list[int]) -> list[int]:
    found = [*parts(sizes, int)]
    assert [size for part in found for size in part] == sizes, "all of them, in their order"
    return [len(part) for part in found]


def test_a_part_has_as_many_items_and_bytes_as_fit_and_at_least_one_item() -> None:
    assert lengths([]) == []
    assert lengths([0] * MOST) == [MOST]
    assert lengths([0] * (2 * MOST + 1)) == [MOST, MOST, 1]
    assert lengths([BYTES - 1, 1, 1]) == [2, 1]
    assert lengths([BYTES + 1, BYTES + 1, 1, BYTES]) == [1, 1, 1, 1]
    assert lengths([BYTES // 2] * 5) == [2, 2, 1]
