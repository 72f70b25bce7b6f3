"""The tables of named consumers. An agent of a version before works without them."""

# `settings`: JSON. The members of a shard: see `oplogd/model/consumer.py`. `consumers_ended`: one
# row, a term behind those of all deleted consumers; no row before the first deletion.
ADDED = (
    """CREATE TABLE IF NOT EXISTS consumers (
        name TEXT PRIMARY KEY, settings TEXT NOT NULL, created INTEGER NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS consumer_shards (
        name TEXT NOT NULL, shard INTEGER NOT NULL, position TEXT NOT NULL, place TEXT,
        term INTEGER NOT NULL, reader TEXT NOT NULL, acknowledged INTEGER NOT NULL,
        PRIMARY KEY (name, shard)
    ) WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS consumers_ended (term INTEGER NOT NULL)",
)
