"""The settings of each mapping of the file. Those of a type of sink are in its module.

The reference of the settings is generated from these tables.
"""

from oplog_kit.listen import listen_address
from oplog_pipe.model import checks
from oplog_pipe.model.fields import AGENTS, HOUR, LOG, TLS, USER, Field, Kind, timeout
from oplog_pipe.sinks.format import FORMAT, OPTIONS, PATH
from oplog_pipe.sinks.registry import type_names


def _namespace(others: str) -> Field:
    """``others``: what happens to messages that do not match."""
    meaning = (
        "Regular expression, which is searched in the message namespace: a type, or the full name "
        f"of a topic, such as `shop/orders`. Messages that do not match {others}."
    )
    return Field("namespace", Kind.PATTERN, meaning, check=checks.pattern)


PIPE = (
    Field(
        "name",
        Kind.TEXT,
        "Name of the pipe: 1 to 64 ASCII letters, digits, `.`, `_` or `-`. Rows in targets belong "
        "to it and the sink, so it must be unique among the pipes that write there. Without it, "
        "they belong to the folder, and are not found again if the folder is lost.",
        check=checks.sink_name,
    ),
    Field(
        "dir",
        Kind.FILE,
        "Folder of the commit log, positions and offsets. One process at a time uses it.",
        required="give the folder of the commit log, such as ./pipe",
    ),
    Field(
        "max_segment_bytes",
        Kind.SIZE,
        "A segment of the commit log is closed at this size. Only closed ones are compacted.",
        1 << 10,
        1 << 40,
    ),
    Field(
        "max_log_bytes",
        Kind.SIZE,
        "Bound of the commit log; a segment is at most a quarter of it. If it is reached, a sink "
        "that is parked or hangs gives up its place if a copy makes up for everything, and the "
        "sources wait for the others. Without it: no bound.",
        1 << 20,
        1 << 50,
    ),
    Field(
        "offset_flush",
        Kind.DURATION,
        "Interval at which the sinks' offsets are written to disk. After a crash, sinks get the "
        "messages of this time again.",
        0.01,
        60,
    ),
    Field(
        "shutdown_timeout",
        Kind.DURATION,
        "Time for the sinks to reach the end of the log when the pipe stops.",
        0,
        HOUR,
    ),
    Field(
        "listen",
        Kind.TEXT,
        "Address for `/status`, `/live` and `/metrics`, such as `localhost:9109`; an empty host is "
        "all interfaces. Without it: none. Variable: `OPLOG_PIPE_LISTEN`.",
        check=listen_address,
        variable="OPLOG_PIPE_LISTEN",
    ),
    Field(
        "sources",
        Kind.SECTION,
        "Logs to follow, a list.",
        required="give a list of logs to follow",
    ),
    Field(
        "sinks",
        Kind.SECTION,
        "Where messages go, a list.",
        required="give a list of sinks",
    ),
)

SOURCE = (
    Field(
        "name",
        Kind.TEXT,
        "Name under which the position is stored: 1 to 64 ASCII letters, digits, `.`, `_`, `-` or "
        "`/`. Unique. Without it: the log.",
        check=checks.source_name,
    ),
    AGENTS,
    LOG,
    Field("password", Kind.SECRET, "Password for reading; of a topic, the right to read it."),
    _namespace("are not stored"),
    Field(
        "on_gap",
        Kind.CHOICE,
        "If messages of a topic are gone before they were read: stop with exit code 5, or continue "
        "with a warning.",
        choices=("stop", "continue"),
    ),
    Field(
        "isolation",
        Kind.CHOICE,
        "Whether messages of open and aborted transactions of a topic are read.",
        choices=("read_committed", "read_uncommitted"),
    ),
    Field(
        "store",
        Kind.URL,
        "Store of the agents: path of the SQLite file, or URL of the database in MongoDB. Many "
        "tasks read it in place of the agents. Only for `oplog-pipe spark`.",
        check=checks.store,
    ),
    *TLS,
)

BATCH = (
    Field("messages", Kind.COUNT, "Messages of one write.", 1, 100_000),
    Field("bytes", Kind.SIZE, "Bytes of the data of one write, after the transforms.", 1, 1 << 30),
    Field(
        "time",
        Kind.DURATION,
        "Time to wait for more messages, from the first one on.",
        0,
        60,
    ),
)

FUNCTION = (
    Field(
        "function",
        Kind.TEXT,
        "`module:function`, called with each message. It returns the message, or None to drop it. "
        "The text alone may stand for the mapping.",
        check=checks.target,
    ),
    _namespace("are dropped"),
)

FETCH = (
    Field("concurrency", Kind.COUNT, "Requests at a time.", 1, 1000),
    timeout("Time for one request."),
    Field(
        "hosts",
        Kind.STRINGS,
        "Hosts that may be asked, such as `api.example.com` or `localhost:8000`. A `ref` to "
        "another one is refused. Without it: every host.",
        check=checks.host,
    ),
    *USER,
    *TLS,
)
TABLE = (FORMAT._replace(meaning="Format of Spark, such as `parquet`."), PATH, OPTIONS)

STEP = (
    *FUNCTION,
    Field("fetch", Kind.SECTION, "Replaces `data` by the document at `data.ref`."),
)

SINK = (
    Field(
        "name",
        Kind.TEXT,
        "Name under which the offset is stored: 1 to 64 ASCII letters, digits, `.`, `_` or `-`. "
        "Unique.",
        check=checks.sink_name,
        required="give the sink a name, under which its offset is stored",
    ),
    Field(
        "type",
        Kind.TEXT,
        f"{', '.join(f'`{each}`' for each in type_names())} or `module:Class`.",
        required=f"give {', '.join(type_names())} or module:Class",
    ),
    _namespace("are acknowledged and go no further"),
    Field(
        "transforms",
        Kind.SECTION,
        "Steps that change or drop messages, a list: `module:function`, `fetch`, or a mapping.",
    ),
    Field("batch", Kind.SECTION, "When messages are written. The first limit counts."),
    Field(
        "retry_for",
        Kind.DURATION,
        "How long a write that fails for a passing reason is repeated. After it the failure "
        "counts as permanent.",
        0,
        7 * 24 * HOUR,
    ),
    Field(
        "dead_letter",
        Kind.FILE,
        "File for messages that the sink refuses for good. Without it, a refusal is a failure of "
        "the sink.",
    ),
    Field(
        "dead_letter_limit",
        Kind.COUNT,
        "So many refusals in a row are a failure of the sink: its target is ill, and the messages "
        "are good. So are five times as many in a minute, if no more were written. 0: no limit.",
        0,
        1_000_000,
    ),
    Field(
        "on_failure",
        Kind.CHOICE,
        "What a failure of the sink does: `stop` the pipe with exit code 4, or `park` the sink. A "
        "parked sink keeps its place and is tried again, with pauses of up to 5 minutes. Sources "
        "and other sinks go on.",
        choices=("stop", "park"),
    ),
    Field(
        "start",
        Kind.CHOICE,
        "Where a sink that is new in the folder begins: at the `end` of the log, or with a new "
        "`copy` of all objects, for all sinks. Without it: at the oldest message, which is refused "
        "if the log is compacted. After a change of settings that decide which rows go where: go "
        "on without a copy, or with one. Without it: the change is refused.",
        choices=("end", "copy"),
    ),
    Field(
        "at_least_once",
        Kind.FLAG,
        "Only for `oplog-pipe spark`, and necessary there for a target that cannot tell a late "
        "writer: messages may come again, and a task that was cut off may bring back an object "
        "that was deleted meanwhile.",
    ),
    Field(
        "tables",
        Kind.SECTION,
        "Tables of Spark by names that `select` uses, a mapping. They are read again for each "
        "batch. Only for `oplog-pipe spark`.",
    ),
    Field(
        "select",
        Kind.PATTERN,
        "Query in SQL over `input`, the messages of a batch, and over `tables`. Only for "
        "`oplog-pipe spark`.",
        check=checks.query,
    ),
)
