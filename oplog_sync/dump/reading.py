"""Set up Spark's readers so that they lose nothing: all files, all rows, columns by name."""

from collections.abc import Sequence
from functools import reduce
from itertools import groupby

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DateType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from oplog_sync.dump.columns import CORRUPT, NAMES, TableFormat, flaw, json_value, ours
from oplog_sync.dump.files import DumpFile, check, columns_in_folders, list_files
from oplog_sync.dump.options import DEFAULTS, RAW_FILES, READING, check_options, has
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
        if settings.format == "jdbc":
            table = spark.read.options(**dict(settings.options)).format("jdbc").load()
            return _table(table, settings, TableFormat(is_jdbc=True))
        files = list_files(spark, dumps)
        check(spark, files, settings.format)
        reader = _Files(spark, settings, files)
        match settings.format:
            case "json":
                return reader.json_lines()
            case "csv":
                return reader.csv()
            case _:
                return reader.parquet()
    except SPARK_ERRORS as error:
        raise DumpError(f"{reason(error)}") from error


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
        """Read columns by name.

        Spark raises an error if a file has another header than the first file.
        """
        options = {"header": "true", **dict(self._settings.options)}
        found = self._reader().options(**options).csv(self._paths).schema
        schema = StructType(
            [_csv_field(each) for each in self._as_in_header(found.fields, options)]
        )
        # With column pruning Spark would not count the fields of a line.
        reader = self._reader().options(**options, enforceSchema="false", columnPruning="false")
        reader = reader.options(mode="PERMISSIVE", columnNameOfCorruptRecord=CORRUPT)
        table_format = TableFormat(is_csv=True, escape_is_given=has(self._settings, "escape"))
        return self._tables(
            reader, "csv", schema, [StructField(CORRUPT, StringType())], table_format
        )

    def _as_in_header(
        self, fields: list[StructField], options: dict[str, str]
    ) -> list[StructField]:
        """Restore empty names in the header: Spark replaces them, and its own check would fail.

        pandas writes the row number into a column without a name.
        """
        if not any(field.name == f"_c{number}" for number, field in enumerate(fields)):
            return fields
        no_header = {
            name: value
            for name, value in options.items()
            if name.lower() not in ("header", "inferschema")
        }
        header = self._reader().options(**no_header).csv(self._paths).first() or ()
        is_unnamed = [*(not name for name in header), *(False for _ in fields)]
        return [
            StructField("", field.dataType) if unnamed and field.name == f"_c{number}" else field
            for number, (field, unnamed) in enumerate(zip(fields, is_unnamed, strict=False))
        ]

    def parquet(self) -> DataFrame:
        """Read the columns of all files. A column is null in the rows of a file without it."""
        schema = self._merged_schema()
        only_ours = StructType([field for field in schema.fields if field.name.lower() in NAMES])
        return self._tables(self._reader(), "parquet", only_ours, [], TableFormat())

    def _tables(
        self,
        reader: DataFrameReader,
        format_: str,
        schema: StructType,
        more: list[StructField],
        table_format: TableFormat,
    ) -> DataFrame:
        """Return the rows of all files, with the columns from folder names."""
        inside = {field.name.lower() for field in schema.fields}
        by_folder = {file: columns_in_folders(file) for file in self._files}
        outside = sorted(
            {name for names in by_folder.values() for name in names if name in NAMES} - inside
        )
        if not outside:
            table = reader.schema(StructType([*schema.fields, *more])).format(format_)
            return _table(table.load(self._paths), self._settings, table_format)
        for file, names in by_folder.items():
            if missing := [name for name in outside if name not in names]:
                raise DumpError(
                    f"folder names give the column {missing[0]}, but "
                    f"{file.shown} is in no folder such as {missing[0]}=..."
                )
        tables: list[DataFrame] = []
        for base, files in groupby(
            sorted(self._files, key=lambda file: file.base), lambda file: file.base
        ):
            paths = [file.path for file in files]
            given = [StructField(by_folder[self._files[0]][name], StringType()) for name in outside]
            full = StructType([*schema.fields, *more, *given])
            rows = reader.schema(full).option("basePath", base).format(format_).load(paths)
            tables.append(_table(rows, self._settings, table_format))
        return reduce(DataFrame.unionAll, tables)

    def _merged_schema(self) -> StructType:
        try:
            return self._reader().option("mergeSchema", "true").parquet(*self._paths).schema
        except SPARK_ERRORS as error:
            if "CANNOT_MERGE_SCHEMAS" not in str(error):
                raise
        # Files may differ in other columns. Reading one by one is slower, and
        # identifies the file.
        merged: dict[str, tuple[StructField, DumpFile]] = {}
        for file in self._files:
            for field in self._reader().parquet(file.path).schema.fields:
                name = field.name.lower()
                if name not in NAMES:
                    continue
                first, first_file = merged.setdefault(name, (field, file))
                if first.dataType != field.dataType:
                    raise DumpError(
                        f"the column {name} is of type "
                        f"{first.dataType.simpleString()} in {first_file.shown} and "
                        f"{field.dataType.simpleString()} in {file.shown}; write all files with "
                        "the same types"
                    )
        return StructType([field for field, _ in merged.values()])

    def _reader(self) -> DataFrameReader:
        reader = (
            self._spark.read.options(**DEFAULTS)
            .options(**dict(self._settings.options))
            .options(**READING)
        )
        if any(":" in file.path.rpartition("/")[2] for file in self._files):
            reader = reader.options(**RAW_FILES)
        return reader


def _csv_field(field: StructField) -> StructField:
    """Read every column as text, so that an id 007 keeps its zeros. Only a time may be inferred."""
    is_time = field.name.lower() == "timestamp" and isinstance(
        field.dataType, TimestampType | TimestampNTZType | DateType
    )
    return StructField(field.name, field.dataType if is_time else StringType())


def _table(rows: DataFrame, settings: JobSettings, table_format: TableFormat) -> DataFrame:
    fields, in_files = ours(rows.schema), not table_format.is_jdbc
    type_ = F.col(f"`{fields['type'].name}`").cast("string")
    wanted = may_be_of(settings.types, type_, in_bytes=in_files)
    return _raw(rows, json_value(fields), flaw(fields, table_format), wanted, in_files=in_files)


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
