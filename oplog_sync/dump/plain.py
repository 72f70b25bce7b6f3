"""Read the rows of a dump in the plain form, many at once.

A row is plain if it is a flat object of only the four members, without escapes, its type in lower
case and its time in UTC. ``decode_row`` judges all other rows.
"""

import json
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from oplog_sync.arrow import instants
from oplogd.model.operation import MAX_ID_BYTES, MAX_OPERATION_BYTES, MAX_TYPE_BYTES

# A text without escapes, control characters and Unicode's line ends, which the log escapes.
_TEXT = r'[^"\\\x00-\x1f\x{85}\x{2028}\x{2029}]+'
# No bounds such as {1,255}: they make the pattern large and slow.
_VALUES = {
    "timestamp": r'"(?P<second>[12]\d{3}-[01]\d-[0-3]\dT[012]\d:[0-5]\d:[0-5]\d)'
    r'(?:(?P<fraction>\.\d{3})\d*)?(?:Z|\+00:00)"',
    "parents": rf'(?P<parents>\[(?:"{_TEXT}"(?:,"{_TEXT}")*)?\])',
    "type": r'"(?P<type>[a-z0-9._-]+)"',
    "id": rf'"(?P<id>{_TEXT})"',
}
_REQUIRED = _VALUES.keys() - {"parents"}


class PlainRows(NamedTuple):
    """Columns of plain rows. ``stamps``: times in the stored form.

    ``parents``: a JSON list in the stored form, null if the row has none.
    """

    types: pa.Array
    ids: pa.Array
    stamps: pa.Array
    parents: pa.Array

    def keys(self) -> pa.Array:
        return pc.binary_join_element_wise(self.types, self.ids, "/")

    def times(self) -> pa.Array:
        """Return microseconds since 1970."""
        return instants(self.stamps).cast(pa.int64())

    def contents(self) -> pa.Array:
        """Return the same text as ``encode_data``. A row without parents has an empty list."""
        parts = ('{"timestamp":"', self.stamps, '","parents":', pc.fill_null(self.parents, "[]"))
        more = (',"type":"', self.types, '","id":"', self.ids, '"}')
        return pc.binary_join_element_wise(*parts, *more, "")

    def filter(self, mask: pa.Array) -> "PlainRows":
        return PlainRows(*(column.filter(mask) for column in self))


def plain_rows(lines: pa.Array) -> tuple[PlainRows, pa.Array]:
    """Return the plain rows among JSON rows in bytes, and all other rows.

    A row with other members than the first one is not plain.
    """
    pattern = _pattern(_members(lines[0].as_py())) if len(lines) else None
    if pattern is not None:
        try:
            return _split(lines, pattern)
        except pa.ArrowInvalid:  # a line is not UTF-8, or a day does not exist
            pass
    return PlainRows(*(pa.array([], pa.string()) for _ in PlainRows._fields)), lines


def _split(lines: pa.Array, pattern: str) -> tuple[PlainRows, pa.Array]:
    found = pc.extract_regex(lines.cast(pa.string()), pattern)
    fields = dict(zip((each.name for each in found.type), found.flatten(), strict=True))
    limits = (
        (lines, MAX_OPERATION_BYTES),
        (fields["id"], MAX_ID_BYTES),
        (fields["type"], MAX_TYPE_BYTES),
    )
    is_plain = pa.array([True] * len(lines))
    for column, most in limits:
        fits = pc.fill_null(pc.less_equal(pc.binary_length(column), most), False)
        is_plain = pc.and_(is_plain, fits)
    chosen = {name: field.filter(is_plain) for name, field in fields.items()}
    fraction = pc.if_else(pc.equal(chosen["fraction"], ""), ".000", chosen["fraction"])
    stamps = pc.binary_join_element_wise(chosen["second"], fraction, "Z", "")
    parents = chosen.get("parents", pa.nulls(len(stamps), pa.string()))
    rows = PlainRows(chosen["type"], chosen["id"], stamps, parents)
    rows.times()  # raises ArrowInvalid for February 30
    return rows, lines.filter(pc.invert(is_plain))


def _members(line: bytes | None) -> tuple[str, ...]:
    try:
        found: Any = json.loads(line or b"")
    except (ValueError, RecursionError):
        return ()
    return tuple(found) if isinstance(found, dict) else ()


def _pattern(members: tuple[str, ...]) -> str | None:
    """Return the pattern of a plain row with these members in this order, None if it has others."""
    if not _REQUIRED <= set(members) <= _VALUES.keys():
        return None
    inside = ", ?".join(f'"{name}": ?{_VALUES[name]}' for name in members)
    return rf"^\{{{inside}\}}[ \t\r\n]*$"
