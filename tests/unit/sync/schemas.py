"""Schemas of Spark without a session, which ``StructType.fromDDL`` needs."""

from pyspark.sql import types as T

_TEXT = T.StringType()
_HEADER = T.StructType([T.StructField("key", _TEXT), T.StructField("value", _TEXT)])
_KINDS: dict[str, T.DataType] = {
    "string": _TEXT,
    "binary": T.BinaryType(),
    "int": T.IntegerType(),
    "bigint": T.LongType(),
    "timestamp": T.TimestampType(),
    "map": T.MapType(_TEXT, _TEXT),
    "array": T.ArrayType(_HEADER),
}


def schema(columns: str) -> T.StructType:
    """Return the schema of columns such as ``id string, lsn bigint``.

    ``array``: of headers. ``map``: of strings.
    """
    pairs = map(str.split, columns.split(", "))
    return T.StructType([T.StructField(name, _KINDS[kind]) for name, kind in pairs])
