"""Turn the columns of a table into one JSON object per row, and find flaws hidden by JSON."""

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from oplog_sync.errors import SyncError

REQUIRED = ("type", "id", "timestamp")
NAMES = (*REQUIRED, "parents")

# Spark puts a CSV line into this column if its fields do not fit the header.
CORRUPT = "_oplog_corrupt"

_TEXTS = (StringType, BinaryType)  # some programs write text as bytes
_NESTED = (ArrayType, MapType, StructType, VariantType)
_TIMES = (TimestampType, TimestampNTZType, DateType)
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # years 1 to 9999 in microseconds


@dataclass(frozen=True)
class TableFormat:
    """Facts about the origin of a table on which the flaws depend."""

    is_csv: bool = False
    escape_is_given: bool = False
    is_jdbc: bool = False


def ours(schema: StructType) -> dict[str, StructField]:
    """Return the needed columns by their names in lower case.

    Raises SyncError if one is missing or ambiguous.
    """
    found: dict[str, StructField] = {}
    for field in schema.fields:
        name = field.name.lower()
        if name not in NAMES:
            continue
        if name in found:
            raise SyncError(
                f"the dump has two columns {name}, {found[name].name} "
                f"and {field.name}; it needs one"
            )
        found[name] = field
    for name in REQUIRED:
        if name not in found:
            raise SyncError(
                f"the dump has no column {name}; it needs type, id, timestamp and may have parents"
            )
    for name in ("type", "id"):
        if isinstance(found[name].dataType, FloatType | DoubleType):
            raise SyncError(
                f"the dump's column {name} holds floating-point numbers, in which 7 and 7.0 "
                "are equal; write it as text or as whole numbers"
            )
    for name, field in found.items():
        kind = field.dataType
        element = kind.elementType if name == "parents" and isinstance(kind, ArrayType) else kind
        if isinstance(element, _NESTED):
            expected = "text or a list of text" if name == "parents" else "text"
            raise SyncError(
                f"the dump's column {name} is of type {kind.simpleString()}; write it as {expected}"
            )
    return found


def json_value(fields: dict[str, StructField]) -> Column:
    """Return the row as JSON."""
    timestamp = _column(fields["timestamp"]).cast("string")
    if isinstance(fields["timestamp"].dataType, _TIMES):
        instant = _column(fields["timestamp"]).cast("timestamp_ltz")
        timestamp = F.date_format(instant, "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")
    named = [_as_text(fields[name]).alias(name) for name in ("type", "id")]
    value = F.to_json(F.struct(*named, timestamp.alias("timestamp")))
    if "parents" in fields:
        # {"parents":[...],"type":... or, if all other columns are null, {"parents":[...]}
        rest = F.when(value == "{}", "}").otherwise(
            F.concat(F.lit(","), F.substring(value, 2, 1 << 30))
        )
        value = F.concat(F.lit('{"parents":'), _list(fields["parents"]), rest)
    return value


def flaw(fields: dict[str, StructField], table_format: TableFormat) -> Column:
    """Return why a row is invalid although its JSON may be valid; null if it has no flaw."""
    texts = {
        name: _column(field) for name, field in fields.items() if isinstance(field.dataType, _TEXTS)
    }
    found: list[Column] = []
    if table_format.is_csv:
        found.append(
            F.when(
                F.col(CORRUPT).isNotNull(),
                "it has more or fewer fields than the header, or a time in "
                "another form than the other rows",
            )
        )
        for name, text in texts.items():
            replaced = text.contains("\ufffd")
            found.append(
                F.when(
                    replaced, f"{name}: is not UTF-8; --option encoding=... names another encoding"
                )
            )
            if not table_format.escape_is_given:
                is_list = F.trim(text).startswith("[") if name == "parents" else F.lit(False)
                found.append(
                    F.when(
                        ~is_list & text.rlike(r'["\\]'),
                        f"{name}: holds a quote or a backslash; give --option escape='\"' if "
                        "quotes are doubled "
                        "inside quotes, or --option 'escape=\\' if a backslash precedes them",
                    )
                )
    else:
        for name, text in texts.items():
            found.append(F.when(~_is_utf8(text), f"{name}: is not UTF-8"))
        if "parents" in fields and _is_list_of_text(fields["parents"]):
            parents = _column(fields["parents"])
            found.append(F.when(~F.forall(parents, _is_utf8), "parents: is not UTF-8"))
    for name in ("type", "id"):
        kind = fields[name].dataType
        if isinstance(kind, DecimalType) and kind.scale:
            number = _column(fields[name])
            found.append(F.when(number != F.floor(number), f"{name}: is not a whole number"))
    if isinstance(fields["timestamp"].dataType, _TIMES):
        instant = F.unix_micros(_column(fields["timestamp"]).cast("timestamp_ltz"))
        found.append(
            F.when(
                ~instant.between(_FIRST, _LAST), "timestamp: out of range: the years are 1 to 9999"
            )
        )
        if table_format.is_jdbc:
            found.append(_wrong_zone())
    return F.coalesce(*found) if found else F.lit(None).cast("string")


def _is_utf8(text: Column) -> Column:
    return F.coalesce(F.is_valid_utf8(text.cast("string")), F.lit(True))


def _is_list_of_text(field: StructField) -> bool:
    return isinstance(field.dataType, ArrayType) and isinstance(field.dataType.elementType, _TEXTS)


def _wrong_zone() -> Column:
    """Find times without a zone, read by a database driver as local times of the executor.

    Only its Java sets the zone.
    """
    zone = F.expr("reflect('java.time.ZoneId', 'systemDefault')")
    is_utc = zone.isin(
        "UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "GMT0", "UCT", "Etc/UCT", "Zulu", "Universal"
    )
    advice = (
        "is the executors' time zone; give spark-submit --conf "
        "spark.executor.extraJavaOptions=-Duser.timezone=UTC"
    )
    return F.when(~is_utc, F.concat(F.lit("timestamp: "), zone, F.lit(f" {advice}")))


def _column(field: StructField) -> Column:
    return F.col(f"`{field.name}`")


def _as_text(field: StructField) -> Column:
    """Return the text of a column, and whole numbers of a decimal column without ".00"."""
    value = _column(field)
    if isinstance(field.dataType, DecimalType) and field.dataType.scale:
        value = F.floor(value)
    return value.cast("string")


def _list(field: StructField) -> Column:
    """Return a list as JSON. A text is a JSON list, or names separated by commas."""
    column = _column(field)
    if isinstance(field.dataType, ArrayType):
        if _is_list_of_text(field):
            column = column.cast("array<string>")  # JSON would show bytes in base64
        return F.coalesce(F.to_json(column), F.lit("null"))
    text = F.trim(column.cast("string"))
    return (
        F.when(text.isNull() | (text == ""), "null")
        .when(text.startswith("["), text)
        .otherwise(F.to_json(F.split(text, ",")))
    )
