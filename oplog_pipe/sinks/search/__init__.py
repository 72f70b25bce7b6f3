"""The sink for Elasticsearch and OpenSearch."""

from oplog_pipe.sinks.search.sink import ElasticsearchSink

__all__ = ["ElasticsearchSink"]
