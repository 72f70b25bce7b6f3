"""Topics by the options of the data source."""

from functools import partial

from pyspark.sql.types import StructType

from oplog_sync.errors import OptionError
from oplog_sync.source.options import SourceOptions
from oplog_sync.source.patience import patiently
from oplog_sync.topics.agent import AgentClient, AgentTopic, Retrying
from oplog_sync.topics.batch import TopicStreamWriter
from oplog_sync.topics.columns import TopicColumns
from oplog_sync.topics.origin import TopicOrigin
from oplog_sync.topics.place import TopicPlace
from oplog_sync.topics.position import TopicOptions, parse_bound, parse_topic
from oplog_sync.topics.store import StoreTopic
from oplog_sync.topics.write import TopicWriter
from oplogd.model.names import TopicName
from oplogd.model.transaction import Isolation


def topic_origin(options: SourceOptions, schema: StructType) -> tuple[TopicOrigin, TopicColumns]:
    """Return the origin of a read, and the columns of its rows. Raises OptionError."""
    made = _topic_options(options)
    columns = TopicColumns(schema, made)
    place: TopicPlace
    if options.agent:
        place = AgentTopic(options.agents(), made, _retrying(options))
    else:
        place = StoreTopic(options.backend(), made, decodes=columns.decodes)
    return TopicOrigin(place, made), columns


def topic_writer(options: SourceOptions, schema: StructType) -> TopicWriter:
    """Return the writer of a topic. Raises OptionError."""
    return TopicWriter(*_written(options), schema, _retrying(options))


def topic_stream_writer(options: SourceOptions, schema: StructType) -> TopicStreamWriter:
    """Return the writer of a query's batches to a topic. Raises OptionError."""
    return TopicStreamWriter(*_written(options), schema, _retrying(options))


def _written(options: SourceOptions) -> tuple[AgentClient, TopicName]:
    if not options.agent:
        raise OptionError(
            "option topic: messages are published through agents; give their addresses in the "
            "option agent, not store"
        )
    return options.agents(), parse_topic(options.topic or "")


def _retrying(options: SourceOptions) -> Retrying:
    return partial(patiently, retry_for=options.retry_for)


def _topic_options(options: SourceOptions) -> TopicOptions:
    return TopicOptions(
        name=parse_topic(options.topic or ""),
        isolation=Isolation(options.isolation),
        is_binary=options.binary,
        start=None if options.start is None else parse_bound("start", options.start),
        end=None if options.end is None else parse_bound("end", options.end),
        partition_rows=options.partition_rows,
        fails_on_gap=options.on_gap == "fail",
    )
