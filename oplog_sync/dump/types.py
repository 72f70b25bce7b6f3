"""Filters for ``--types`` on folders, Parquet statistics and rows, before rows go to Python.

Rows of other types may pass; Python drops them. Wanted and unreadable rows always pass.
"""

from collections.abc import Collection
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F

_NOT_ASCII = r"[^\x00-\x7f]"
# A flat JSON object without escapes. Any other line goes to Python.
_ONE_TYPE = r'^\s*\{[^{}\\]*"type"\s*:\s*"([^"\\]*)"[^{}\\]*\}\s*$'


def may_be_of(types: Collection[str], column: Column, *, in_bytes: bool) -> Column:
    """Return whether a value may be one of ``types`` (lower case; empty: all).

    ``in_bytes``: the reader compares text by its bytes. Databases have other rules.
    """
    if not types:
        return F.lit(True)
    # Not `is null or`: Spark would factor it out of both conditions, and Parquet could use neither.
    is_one = F.coalesce(F.lower(column).isin(*types), F.lit(True))
    # A letter beyond ASCII may become an ASCII letter in lower case: the kelvin sign becomes k.
    if not all(name.isascii() and "k" not in name for name in types):
        return is_one | column.rlike(_NOT_ASCII)
    if not in_bytes:
        return is_one
    # Any mix of cases begins with the upper or lower first letter and sorts between all upper and
    # all lower case.
    firsts = [(first, name[1:]) for name in sorted(types) for first in (name[0].upper(), name[0])]
    ranges = [(column >= first + rest.upper()) & (column <= first + rest) for first, rest in firsts]
    return is_one & (column.isNull() | reduce(or_, ranges))


def may_hold(types: Collection[str], line: Column) -> Column:
    """Return whether a line of JSON may be a row of one of ``types``, or an invalid row."""
    if not types:
        return F.lit(True)
    found = F.regexp_extract(line, _ONE_TYPE, 1)
    is_plain = (found != "") & ~line.rlike('"type".*"type"')
    return ~is_plain | found.rlike(_NOT_ASCII) | F.lower(found).isin(*types)
