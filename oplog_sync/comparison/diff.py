"""Compare the dump with the states, with the rules as column expressions.

``survey`` finds the objects with a possible correction by a narrow aggregate. ``compare`` decides
on them by a full outer join of whole rows.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from oplog_sync.dump.rows import INVALID

# Live in the store and not in the dump. The dump's newest row decides: delete or untouched.
ABSENT = "absent"
# Another row of the dump supersedes this row of the same object.
DUPLICATE = "duplicate"
# The survey leaves the object to ``compare``.
OPEN = "open"

CORRECTIONS = ("insert", "update", "delete")

# The columns of an object. They are null in counts.
_OF_OBJECT = {"key": "string", "offset": "bigint", "data": "string", "timestamp": "bigint"}

# Position, from 1, behind the timestamp in an operation's data. If the keys are equal, only the
# parents can differ there.
_REST = len('{"timestamp":"2014-11-06T11:04:39.041Z') + 1

_ALL = 1 << 30


def survey(states: DataFrame, dump: DataFrame) -> DataFrame:
    """Return a row for each object with a possible correction, and counts of all others.

    ``states``, ``dump``: narrow rows. ``action``: OPEN, "untouched" or "invalid". For an open
    object ``key``, and ``known``: it is in the store. For other rows ``count``: objects.
    ``duplicates``: superseded rows of the dump. ``live`` and ``in_dump``: as from ``compare``.
    """
    known = states.select(
        "key",
        F.col("timestamp").alias("known_timestamp"),
        _parents_hash().alias("known_parents"),
        F.col("live").cast("int").alias("live"),
    )
    rows = dump.select("key", "timestamp", _parents_hash().alias("parents"), F.lit(1).alias("row"))
    # The exchange comes first: an object has one or two rows, so earlier sums would save nothing.
    # All values have a fixed width, so Spark aggregates them in a hash table.
    both = known.unionByName(rows, allowMissingColumns=True).repartition("key")
    objects = both.groupBy("key").agg(
        *(F.max(name).alias(name) for name in ("known_timestamp", "known_parents", "live")),
        *(F.max(name).alias(name) for name in ("timestamp", "parents")),
        F.count("row").alias("rows"),
    )
    in_store, in_dump = F.col("known_timestamp").isNotNull(), F.col("rows") > 0
    is_live, is_newer = F.col("live") == 1, F.col("timestamp") > F.col("known_timestamp")
    may_differ = (F.col("rows") > 1) | (F.col("parents") != F.col("known_parents"))
    is_same_time = F.col("timestamp") == F.col("known_timestamp")
    is_open = F.when(~in_dump, is_live).when(~in_store | is_newer, F.lit(True))
    is_open = is_open.otherwise(is_live & is_same_time & F.coalesce(may_differ, F.lit(False)))
    action = F.when(F.col("key") == INVALID, "invalid").when(is_open, OPEN).otherwise("untouched")
    found = objects.select(
        F.substring_index("key", "/", 1).alias("type"),
        action.alias("action"),
        F.when(action == OPEN, F.col("key")).alias("key"),
        in_store.alias("known"),
        "live",
        "rows",
        F.col("timestamp").alias("in_dump"),
    )
    is_invalid = F.col("action") == "invalid"
    return found.groupBy("type", "action", "key").agg(
        F.when(is_invalid, F.sum("rows")).otherwise(F.count("*")).alias("count"),
        F.sum(F.when(~is_invalid & (F.col("rows") > 1), F.col("rows") - 1)).alias("duplicates"),
        F.count_if(F.col("live") == 1).alias("live"),
        F.max("in_dump").alias("in_dump"),
        F.max("known").alias("known"),
    )


def settled(surveyed: DataFrame) -> DataFrame:
    """Return the counts of a survey in the columns of ``compare``, without the open objects."""
    found = surveyed.where(F.col("action") != OPEN)
    nothing = [F.lit(None).cast(kind).alias(name) for name, kind in _OF_OBJECT.items()]
    counts = found.select("type", "action", *nothing, "count", "live", "in_dump")
    more = F.lit(DUPLICATE).alias("action"), F.col("duplicates").alias("count")
    duplicates = found.where("duplicates > 0").select(
        "type", more[0], *nothing, more[1], F.lit(0).cast("bigint").alias("live"), "in_dump"
    )
    return counts.unionAll(duplicates)


def compare(states: DataFrame, dump: DataFrame) -> DataFrame:
    """Return a row for each object with a possible correction, and counts of all others.

    ``action``: one of CORRECTIONS, ABSENT, DUPLICATE, "untouched", "invalid". ``count``: objects or
    dump rows in this row. ``live``: live ones in the store. ``in_dump``: newest time in the dump.
    For an object: ``timestamp`` and ``data`` of the correction, ``offset`` of the state (0: not in
    the store). Times are microseconds since 1970.
    """
    known = states.select(
        _hash().alias("known_hash"),
        F.col("key").alias("known_key"),
        F.col("offset").alias("known_offset"),
        F.col("timestamp").alias("known_timestamp"),
        F.col("data").alias("known_data"),
        "live",
    )
    is_same = (F.col("known_hash") == F.col("hash")) & (F.col("known_key") == F.col("key"))
    action = _action()
    matters = action.isin(*CORRECTIONS, ABSENT)
    key, timestamp = (F.coalesce(name, f"known_{name}") for name in ("key", "timestamp"))
    joined = known.join(_placed(dump), is_same, "full_outer").select(
        F.substring_index(key, "/", 1).alias("type"),
        action.alias("action"),
        F.when(matters, key).alias("key"),
        F.when(matters, F.coalesce(F.col("known_offset"), F.lit(0))).alias("offset"),
        F.when(matters, F.coalesce(_data(), F.col("known_data"))).alias("data"),
        F.when(matters, timestamp).alias("timestamp"),
        F.col("timestamp").alias("in_dump"),
        (F.coalesce(F.col("live"), F.lit(False)) & (action != DUPLICATE)).alias("live"),
    )
    # Without a correction the key is null: such rows are combined before the shuffle.
    return joined.groupBy("type", "action", *_OF_OBJECT).agg(
        F.count("*").alias("count"),
        F.count_if("live").alias("live"),
        F.max("in_dump").alias("in_dump"),
    )


def decide(compared: DataFrame, newest: int | None) -> DataFrame:
    """Turn ABSENT into delete if the object is older than the dump's newest row, else untouched.

    ``newest``: microseconds since 1970. None: no object is older.
    """
    is_older = F.lit(False) if newest is None else F.col("timestamp") < F.lit(newest)
    decided = F.when(is_older, "delete").otherwise("untouched")
    action = F.col("action")
    return compared.withColumn("action", F.when(action == ABSENT, decided).otherwise(action))


def _parents_hash() -> Column:
    """Return a hash of the set of parents. One parent is the usual case, and sorting is slow."""
    parents = F.from_json("parents", "array<string>")
    several = F.xxhash64(F.sort_array(F.array_distinct(parents)))
    return F.when(F.col("parents").contains(","), several).when(
        F.col("parents").isNotNull(), F.xxhash64("parents")
    )


def _hash() -> Column:
    """Return a hash of the key. Most keys share a long prefix, so comparing keys is slow."""
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
    """Return whether the row names other parents than the state has. The order does not matter."""
    json = F.substring("data", _REST, _ALL), F.substring("known_data", _REST, _ALL)
    sets = [
        F.sort_array(F.array_distinct(F.from_json(name, "parents array<string>")["parents"]))
        for name in ("data", "known_data")
    ]
    # Compare the JSON first: parsing is slow, and nearly all pairs are equal.
    return F.col("has_parents") & (json[0] != json[1]) & (sets[0] != sets[1])


def _data() -> Column:
    """Return the row's data. A row without parents keeps the parents of the state."""
    merged = F.concat(F.substring("data", 1, _REST - 1), F.substring("known_data", _REST, _ALL))
    keeps = ~F.col("has_parents") & F.col("known_data").isNotNull()
    return F.when(keeps, merged).otherwise(F.col("data"))


def _placed(dump: DataFrame) -> DataFrame:
    """Add ``place``: 1 marks the row in effect for its object, the same row in every run."""
    hashed = dump.withColumn("hash", _hash())
    order = (F.desc(name) for name in ("timestamp", "has_parents", "data"))
    rows_of_object = Window.partitionBy("hash", "key").orderBy(*order)
    return hashed.withColumn("place", F.row_number().over(rows_of_object))
