"""Set up Spark's readers so that they lose nothing: all files, all rows, columns by name."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from oplog_sync.dump.columns import CORRUPT, NAMES, flaw, json_value, ours
from oplog_sync.dump.files import DumpFile, check, columns_in_folders, list_files
from oplog_sync.dump.options import DEFAULTS, RAW_FILES, READING, check_options
from oplog_sync.dump.types import may_be_of, may_hold
from oplog_sync.errors import DumpError
from oplog_sync.failure import SPARK_ERRORS, reason
from oplog_sync.settings import JobSettings


def raw_rows(spark: SparkSession, settings: JobSettings, dumps: Sequence[str]) -> DataFrame:
    """Return each row as JSON in bytes, with facts about it. Raises SyncError and OptionError.

    ``value``: the JSON. ``flaw``: why the row is invalid although its JSON may be valid, else null.
    ``may_be_wanted``: false if its type is certainly none of ``--types``. ``file``: a URL.
    ``block``: position in the file at which Spark began to read.
    """
    check_options(settings)
    try:
        if settings.table is not None:
            return _table(_catalog_table(spark, settings.table, settings.as_of), settings)
        if settings.format == "jdbc":
            table = spark.read.options(**dict(settings.options)).format("jdbc").load()
            return _table(table, settings)
        files = list_files(spark, dumps)
        check(spark, files, settings.format)
        reader = _Files(spark, settings, files)
        if settings.format == "json":
            return reader.json_lines()
        return reader.csv() if settings.format == "csv" else reader.columnar()
    except SPARK_ERRORS as error:
        raise DumpError(reason(error)) from error


def _catalog_table(spark: SparkSession, name: str, as_of: str | None) -> DataFrame:
    reader = spark.read
    if as_of is not None:
        is_version = as_of.isdecimal()
        reader = reader.option("versionAsOf" if is_version else "timestampAsOf", as_of)
    return reader.table(name)


class _Files:
    def __init__(self, spark: SparkSession, settings: JobSettings, files: list[DumpFile]) -> None:
        self._spark = spark
        self._settings = settings
        self._files = files
        self._paths = [file.path for file in files]

    def json_lines(self) -> DataFrame:
        lines, line = self._reader().text(self._paths), F.col("value")
        no_flaw = F.lit(None).cast("string")
        return _raw(lines, line, no_flaw, may_hold(self._settings.types, line))

    def csv(self) -> DataFrame:
        """Read columns by name. Spark refuses a file with another header than the first file."""
        options = {"header": "true", **dict(self._settings.options)}
        found = self._reader().options(**options).csv(self._paths).schema
        fields = [_csv_field(each) for each in self._as_in_header(found.fields, options)]
        # With column pruning Spark would not count the fields of a line.
        reader = self._reader().options(**options, enforceSchema="false", columnPruning="false")
        reader = reader.options(mode="PERMISSIVE", columnNameOfCorruptRecord=CORRUPT)
        return self._tables(reader, fields, [T.StructField(CORRUPT, T.StringType())])

    def _as_in_header(
        self, fields: list[T.StructField], options: dict[str, str]
    ) -> list[T.StructField]:
        """Restore empty names in the header, such as pandas' column of row numbers.

        Spark replaces them, and its own check would fail.
        """
        if not any(field.name == f"_c{number}" for number, field in enumerate(fields)):
            return fields
        names = [name for name in options if name.lower() not in ("header", "inferschema")]
        reader = self._reader().options(**{name: options[name] for name in names})
        header = reader.csv(self._paths).first() or ()
        is_unnamed = [*(not name for name in header), *(False for _ in fields)]
        return [
            T.StructField("", field.dataType) if unnamed and field.name == f"_c{number}" else field
            for number, (field, unnamed) in enumerate(zip(fields, is_unnamed, strict=False))
        ]

    def columnar(self) -> DataFrame:
        """Read the columns of all files. A column is null in the rows of a file without it."""
        schema = self._merged_schema()
        only_ours = [field for field in schema.fields if field.name.lower() in NAMES]
        for field in only_ours:
            # Spark reads the clock of the writer's time zone as that of its own, and does not say
            # which times have a zone.
            if self._settings.format == "orc" and isinstance(field.dataType, T.TimestampType):
                raise DumpError(
                    f"the column {field.name} is an ORC timestamp, which Spark may read in another "
                    "time zone; write it as text with its UTC offset, or write Parquet"
                )
        return self._tables(self._reader(), only_ours, [])

    def _tables(
        self, reader: DataFrameReader, fields: list[T.StructField], more: list[T.StructField]
    ) -> DataFrame:
        """Return the rows of all files, with the columns from folder names."""
        inside = {field.name.lower() for field in fields}
        by_folder = {file: columns_in_folders(file) for file in self._files}
        named = {name for names in by_folder.values() for name in names}
        outside = sorted((named & {*NAMES}) - inside)
        for file, names in by_folder.items():
            if missing := [name for name in outside if name not in names]:
                raise DumpError(
                    f"folder names give the column {missing[0]}, but "
                    f"{file.shown} is in no folder such as {missing[0]}=..."
                )
        given = [T.StructField(by_folder[self._files[0]][name], T.StringType()) for name in outside]
        reader = reader.schema(T.StructType([*fields, *more, *given])).format(self._settings.format)
        if not outside:
            return _table(reader.load(self._paths), self._settings)
        paths: dict[str, list[str]] = {}
        for file in self._files:
            paths.setdefault(file.base, []).append(file.path)
        tables = (reader.option("basePath", base).load(of_it) for base, of_it in paths.items())
        return reduce(DataFrame.unionAll, (_table(rows, self._settings) for rows in tables))

    def _merged_schema(self) -> T.StructType:
        try:
            reader = self._reader().format(self._settings.format).option("mergeSchema", "true")
            return reader.load(self._paths).schema
        except SPARK_ERRORS as error:
            if "CANNOT_MERGE_SCHEMAS" not in str(error):
                raise
        # Files may differ in other columns. Reading one by one is slower, and identifies the file.
        merged: dict[str, tuple[T.StructField, DumpFile]] = {}
        for file in self._files:
            one = self._reader().format(self._settings.format).load(file.path)
            for field in one.schema.fields:
                name, kind = field.name.lower(), field.dataType
                if name not in NAMES:
                    continue
                first, first_file = merged.setdefault(name, (field, file))
                if first.dataType != kind:
                    raise DumpError(
                        f"the column {name} is of type {first.dataType.simpleString()} in "
                        f"{first_file.shown} and {kind.simpleString()} in {file.shown}; write all "
                        "files with the same types"
                    )
        return T.StructType([field for field, _ in merged.values()])

    def _reader(self) -> DataFrameReader:
        reader = self._spark.read.options(**DEFAULTS).options(**dict(self._settings.options))
        has_colon = any(":" in file.path.rpartition("/")[2] for file in self._files)
        return reader.options(**READING, **(RAW_FILES if has_colon else {}))


def _csv_field(field: T.StructField) -> T.StructField:
    """Read every column as text, so that an id 007 keeps its zeros. Only a time may be inferred."""
    is_time = field.name.lower() == "timestamp" and isinstance(
        field.dataType, T.TimestampType | T.TimestampNTZType | T.DateType
    )
    return T.StructField(field.name, field.dataType if is_time else T.StringType())


def _table(rows: DataFrame, settings: JobSettings) -> DataFrame:
    fields = ours(rows.schema)
    in_files = settings.format != "jdbc" and settings.table is None
    type_ = F.col(f"`{fields['type'].name}`").cast("string")
    wanted = may_be_of(settings.types, type_, in_bytes=in_files)
    escape_is_given = any(name.lower() == "escape" for name, _ in settings.options)
    wrong = flaw(fields, settings.format, escape_is_given=escape_is_given)
    return _raw(rows, json_value(fields), wrong, wanted, in_files=in_files)


def _raw(
    rows: DataFrame, value: Column, flaw: Column, wanted: Column, *, in_files: bool = True
) -> DataFrame:
    file, block = F.lit(""), F.lit(0)
    if in_files:
        file, block = F.col("_metadata.file_path"), F.col("_metadata.file_block_start")
    return rows.select(
        value.cast("binary").alias("value"),
        flaw.alias("flaw"),
        wanted.alias("may_be_wanted"),
        file.alias("file"),
        block.cast("bigint").alias("block"),
    )
