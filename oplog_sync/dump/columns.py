"""Turn the columns of a table into one JSON object per row, and find flaws hidden by JSON."""

from collections.abc import Iterator

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from oplog_sync.errors import SyncError

REQUIRED = ("type", "id", "timestamp")
NAMES = (*REQUIRED, "parents")

# Spark puts a CSV line into this column if its fields do not fit the header.
CORRUPT = "_oplog_corrupt"

_STRINGS = (T.StringType, T.BinaryType)  # some programs write text as bytes
_NESTED = (T.ArrayType, T.MapType, T.StructType, T.VariantType)
_TIMES = (T.TimestampType, T.TimestampNTZType, T.DateType)
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # years 1 to 9999 in microseconds
_UTC = ("UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "GMT0", "UCT", "Etc/UCT", "Zulu", "Universal")


def ours(schema: T.StructType) -> dict[str, T.StructField]:
    """Return the needed columns by their names in lower case.

    Raises SyncError if one is missing or ambiguous.
    """
    found: dict[str, T.StructField] = {}
    for field in schema.fields:
        name = field.name.lower()
        if name not in NAMES:
            continue
        if name in found:
            both = f"{found[name].name} and {field.name}"
            raise SyncError(f"the dump has two columns {name}, {both}; it needs one")
        found[name] = field
    for name in REQUIRED:
        if name not in found:
            raise SyncError(
                f"the dump has no column {name}; it needs type, id, timestamp and may have parents"
            )
    for name in ("type", "id"):
        if isinstance(found[name].dataType, T.FloatType | T.DoubleType):
            raise SyncError(
                f"the dump's column {name} holds floating-point numbers, in which 7 and 7.0 "
                "are equal; write it as text or as whole numbers"
            )
    for name, field in found.items():
        kind = field.dataType
        element = kind.elementType if name == "parents" and isinstance(kind, T.ArrayType) else kind
        if isinstance(element, _NESTED):
            expected = "text or a list of text" if name == "parents" else "text"
            raise SyncError(
                f"the dump's column {name} is of type {kind.simpleString()}; write it as {expected}"
            )
    return found


def json_value(fields: dict[str, T.StructField]) -> Column:
    """Return the row as JSON."""
    timestamp = _column(fields["timestamp"]).cast("string")
    if isinstance(fields["timestamp"].dataType, _TIMES):
        instant = _column(fields["timestamp"]).cast("timestamp_ltz")
        timestamp = F.date_format(instant, "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")
    named = [_as_text(fields[name]).alias(name) for name in ("type", "id")]
    value = F.to_json(F.struct(*named, timestamp.alias("timestamp")))
    if "parents" in fields:
        # {"parents":[...],"type":... or, if all other columns are null, {"parents":[...]}
        others = F.concat(F.lit(","), F.substring(value, 2, 1 << 30))
        rest = F.when(value == "{}", "}").otherwise(others)
        value = F.concat(F.lit('{"parents":'), _list(fields["parents"]), rest)
    return value


def flaw(fields: dict[str, T.StructField], format_: str, *, escape_is_given: bool) -> Column:
    """Return why a row is invalid although its JSON may be valid; null if it has no flaw."""
    found = _flaws(fields, format_, escape_is_given)
    return F.coalesce(*(F.when(*each) for each in found), F.lit(None).cast("string"))


def _flaws(
    fields: dict[str, T.StructField], format_: str, escape_is_given: bool
) -> Iterator[tuple[Column, Column | str]]:
    """Yield each flaw as a condition and a sentence. The first one of a row counts."""
    strings = {
        name: _column(field)
        for name, field in fields.items()
        if isinstance(field.dataType, _STRINGS)
    }
    if format_ == "csv":
        yield (
            F.col(CORRUPT).isNotNull(),
            "it has more or fewer fields than the header, or a time in another form than the other"
            " rows",
        )
        for name, text in strings.items():
            replaced = text.contains("\ufffd")
            yield replaced, f"{name}: is not UTF-8; --option encoding=... names another encoding"
            if not escape_is_given:
                is_list = F.trim(text).startswith("[") if name == "parents" else F.lit(False)
                yield (
                    ~is_list & text.rlike(r'["\\]'),
                    f"{name}: holds a quote or a backslash; give --option escape='\"' if quotes are"
                    " doubled inside quotes, or --option 'escape=\\' if a backslash precedes them",
                )
    else:
        for name, text in strings.items():
            yield ~_is_utf8(text), f"{name}: is not UTF-8"
        if "parents" in fields and _is_list_of_text(fields["parents"]):
            yield ~F.forall(_column(fields["parents"]), _is_utf8), "parents: is not UTF-8"
    for name in ("type", "id"):
        kind = fields[name].dataType
        if isinstance(kind, T.DecimalType) and kind.scale:
            number = _column(fields[name])
            yield number != F.floor(number), f"{name}: is not a whole number"
    if isinstance(fields["timestamp"].dataType, _TIMES):
        instant = F.unix_micros(_column(fields["timestamp"]).cast("timestamp_ltz"))
        fits = instant.between(_FIRST, _LAST)
        yield ~fits, "timestamp: out of range: the years are 1 to 9999"
        if format_ == "jdbc":
            yield _wrong_zone()


def _is_utf8(text: Column) -> Column:
    return F.coalesce(F.is_valid_utf8(text.cast("string")), F.lit(True))


def _is_list_of_text(field: T.StructField) -> bool:
    return isinstance(field.dataType, T.ArrayType) and isinstance(
        field.dataType.elementType, _STRINGS
    )


def _wrong_zone() -> tuple[Column, Column]:
    """Find times without a zone, read by a database driver in the zone of the executor's Java."""
    zone = F.expr("reflect('java.time.ZoneId', 'systemDefault')")
    advice = (
        " is the executors' time zone; give spark-submit --conf "
        "spark.executor.extraJavaOptions=-Duser.timezone=UTC"
    )
    return ~zone.isin(*_UTC), F.concat(F.lit("timestamp: "), zone, F.lit(advice))


def _column(field: T.StructField) -> Column:
    return F.col(f"`{field.name}`")


def _as_text(field: T.StructField) -> Column:
    """Return the text of a column, and whole numbers of a decimal column without ".00"."""
    value = _column(field)
    if isinstance(field.dataType, T.DecimalType) and field.dataType.scale:
        value = F.floor(value)
    return value.cast("string")


def _list(field: T.StructField) -> Column:
    """Return a list as JSON. A text is a JSON list, or names separated by commas."""
    column = _column(field)
    if isinstance(field.dataType, T.ArrayType):
        if _is_list_of_text(field):
            column = column.cast("array<string>")  # JSON would show bytes in base64
        return F.coalesce(F.to_json(column), F.lit("null"))
    text = F.trim(column.cast("string"))
    json = F.when(text.isNull() | (text == ""), "null").when(text.startswith("["), text)
    return json.otherwise(F.to_json(F.split(text, ",")))
