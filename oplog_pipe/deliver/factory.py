"""Makes sinks from settings. Each module is imported only if a sink needs it."""

from pathlib import Path

from oplog_pipe.errors import ConfigError
from oplog_pipe.model.options import (
    CustomOptions,
    ElasticsearchOptions,
    FileOptions,
    HttpOptions,
    MongodbOptions,
    OplogOptions,
    PostgresOptions,
)
from oplog_pipe.model.settings import SinkSettings
from oplog_pipe.sinks.base import Sink


def build(settings: SinkSettings, root: Path) -> Sink:
    """Return a sink that is not open yet. Raises ConfigError, which names the sink.

    ``root``: folder of the settings file.
    """
    try:
        return _build(settings, root)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"sink {settings.name}: type {settings.type} needs the package {error.name}; in the"
            " checkout of oplog, run: pip install -c constraints.txt '.[pipe]' ./clients/python"
        ) from None
    except (ConfigError, ValueError) as error:
        raise ConfigError(f"sink {settings.name}: {error}") from error.__cause__


def _build(settings: SinkSettings, root: Path) -> Sink:
    # A transform may write to namespaces that the sink's expression does not match.
    namespace = ".*" if settings.transforms else settings.namespace
    match settings.options:
        case FileOptions() as options:
            from oplog_pipe.sinks.file import FileSink

            return FileSink(options, root)
        case HttpOptions() as options:
            from oplog_pipe.sinks.http import HttpSink

            return HttpSink(options)
        case PostgresOptions() as options:
            from oplog_pipe.sinks.postgres import PostgresSink

            return PostgresSink(options, namespace, root)
        case MongodbOptions() as options:
            from oplog_pipe.sinks.mongodb import MongodbSink

            return MongodbSink(options, namespace)
        case ElasticsearchOptions() as options:
            from oplog_pipe.sinks.search import ElasticsearchSink

            return ElasticsearchSink(options, namespace)
        case OplogOptions() as options:
            from oplog_pipe.sinks.oplog import OplogSink

            return OplogSink(options)
        case CustomOptions() as options:
            from oplog_pipe.sinks.custom import custom_sink

            return custom_sink(options, root)
        case options:
            raise ConfigError(f"type {settings.type} has no sink for {type(options).__name__}")
