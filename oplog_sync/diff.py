"""The comparison: one full outer join of states and dump, with the rules as column expressions."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from oplog_sync.dump import INVALID

STATE_COLUMNS = "key string, event string, n bigint, timestamp timestamp_ltz, data string"

ABSENT = "absent"
"""Live in the store and not in the dump: a delete or untouched, which only the dump's newest row can tell."""

DUPLICATE = "duplicate"
"""A row of the dump that gives way to another row of its object."""

CORRECTIONS = ("insert", "update", "delete")

_REST = len('{"timestamp":"2014-11-06T11:04:39.041Z') + 1
"""Where the data of an operation goes on behind its timestamp, from 1; the key being equal, parents alone may differ."""

_ALL = 1 << 30


def compare(states: DataFrame, dump: DataFrame) -> DataFrame:
    """A row for each object that may need a correction; all else is only counted, in a row for each type and action.

    ``action``: of CORRECTIONS, ABSENT, DUPLICATE, "untouched", "invalid". ``count``: how many objects or rows of the dump
    this row stands for. ``live``: how many of them the store has. ``in_dump``: the time of the newest of them there. For
    an object: ``timestamp`` and ``data`` of the operation that corrects it and ``n`` of its state (0: not in the store).
    Times are microseconds since 1970.
    """
    known = states.select(
        _hash().alias("known_hash"),
        F.col("key").alias("known_key"),
        F.col("n").alias("known_n"),
        F.unix_micros("timestamp").alias("known_timestamp"),
        F.col("data").alias("known_data"),
        (F.col("event") == "insert").alias("live"),
    )
    is_same = (F.col("known_hash") == F.col("hash")) & (F.col("known_key") == F.col("key"))
    action = _action()
    matters = action.isin(*CORRECTIONS, ABSENT)
    key = F.coalesce(F.col("key"), F.col("known_key"))
    joined = known.join(_placed(dump), is_same, "full_outer").select(
        F.substring_index(key, "/", 1).alias("type"),
        action.alias("action"),
        F.when(matters, key).alias("key"),
        F.when(matters, F.coalesce(F.col("known_n"), F.lit(0))).alias("n"),
        F.when(matters, F.coalesce(_data(), F.col("known_data"))).alias("data"),
        F.when(matters, F.coalesce(F.col("timestamp"), F.col("known_timestamp"))).alias(
            "timestamp"
        ),
        F.col("timestamp").alias("in_dump"),
        (F.coalesce(F.col("live"), F.lit(False)) & (action != DUPLICATE)).alias("live"),
    )
    # What is grouped by is null in all rows that do not matter: they shrink to a few before they travel.
    return joined.groupBy("type", "action", "key", "n", "data", "timestamp").agg(
        F.count("*").alias("count"),
        F.count_if("live").alias("live"),
        F.max("in_dump").alias("in_dump"),
    )


def decide(compared: DataFrame, newest: int | None) -> DataFrame:
    """ABSENT as a delete where the object is older than the newest row of the dump, else untouched.

    ``newest``: microseconds since 1970. None: nothing is older.
    """
    is_older = F.lit(False) if newest is None else F.col("timestamp") < F.lit(newest)
    decided = F.when(is_older, "delete").otherwise("untouched")
    return compared.withColumn(
        "action", F.when(F.col("action") == ABSENT, decided).otherwise(F.col("action"))
    )


def _hash() -> Column:
    """Sorted by it and the key, rows are told apart by eight bytes in place; keys mostly begin alike."""
    return F.xxhash64("key")


def _action() -> Column:
    in_dump, in_store = F.col("key").isNotNull(), F.col("known_key").isNotNull()
    is_newer = F.col("timestamp") > F.col("known_timestamp")
    has_other_parents = (F.col("timestamp") == F.col("known_timestamp")) & _parents_differ()
    return (
        F.when(F.col("key") == INVALID, "invalid")
        .when(F.col("place") > 1, DUPLICATE)
        .when(in_dump & ~in_store, "insert")
        .when(in_dump & F.col("live") & (is_newer | has_other_parents), "update")
        .when(in_dump & ~F.col("live") & is_newer, "insert")
        .when(~in_dump & F.col("live"), ABSENT)
        .otherwise("untouched")
    )


def _parents_differ() -> Column:
    """Whether the row names other parents than the state has; their order does not count."""
    texts = F.substring("data", _REST, _ALL), F.substring("known_data", _REST, _ALL)
    sets = [
        F.sort_array(F.array_distinct(F.from_json(name, "parents array<string>")["parents"]))
        for name in ("data", "known_data")
    ]
    # Nearly all texts are equal, and taking them apart is slow.
    return F.col("has_parents") & (texts[0] != texts[1]) & (sets[0] != sets[1])


def _data() -> Column:
    """The row's data; one that does not name its parents leaves the object those it has in the store."""
    kept = F.concat(F.substring("data", 1, _REST - 1), F.substring("known_data", _REST, _ALL))
    return F.when(~F.col("has_parents") & F.col("known_data").isNotNull(), kept).otherwise(
        F.col("data")
    )


def _placed(dump: DataFrame) -> DataFrame:
    """``place`` 1 is the row of an object that counts. Of rows with the same time it is the same one in every run."""
    hashed = dump.withColumn("hash", _hash())
    rows_of_object = Window.partitionBy("hash", "key").orderBy(
        F.desc("timestamp"), F.desc("has_parents"), F.desc("data")
    )
    return hashed.withColumn("place", F.row_number().over(rows_of_object))
