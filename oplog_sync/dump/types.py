"""``--types`` as a filter that Spark applies before rows go to Python, to folders and to Parquet's statistics.

It may let rows of other types pass, which Python drops, but never holds back a wanted or an unreadable one.
"""

from collections.abc import Collection
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F

_NOT_ASCII = r"[^\x00-\x7f]"
_ONE_TYPE = r'^\s*\{[^{}\\]*"type"\s*:\s*"([^"\\]*)"[^{}\\]*\}\s*$'
"""A flat JSON object in which nothing is escaped. Any other line goes to Python."""


def may_be_of(types: Collection[str], column: Column, *, in_bytes: bool) -> Column:
    """Whether a value may be one of ``types``, which are in lower case; none is all.

    ``in_bytes``: whether the reader compares text by its bytes, as Parquet does. A database has rules of its own.
    """
    if not types:
        return F.lit(True)
    # Not as `is null or`: Spark would draw that out of both conditions, and Parquet understand neither.
    is_one = F.coalesce(F.lower(column).isin(*types), F.lit(True))
    # A letter beyond ASCII may be an ASCII one in lower case: the sign for kelvin is a k.
    if not all(name.isascii() and "k" not in name for name in types):
        return is_one | column.rlike(_NOT_ASCII)
    if not in_bytes:
        return is_one
    # Every mixture of cases begins with the one or the other letter, and goes on between capitals and small letters.
    firsts = [(first, name[1:]) for name in sorted(types) for first in (name[0].upper(), name[0])]
    ranges = [(column >= first + rest.upper()) & (column <= first + rest) for first, rest in firsts]
    return is_one & (column.isNull() | reduce(or_, ranges))


def may_hold(types: Collection[str], line: Column) -> Column:
    """Whether a line of JSON may be a row of one of ``types``, or an invalid one."""
    if not types:
        return F.lit(True)
    found = F.regexp_extract(line, _ONE_TYPE, 1)
    is_plain = (found != "") & ~line.rlike('"type".*"type"')
    return ~is_plain | found.rlike(_NOT_ASCII) | F.lower(found).isin(*types)
