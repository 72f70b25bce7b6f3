"""Settings that a pipe on Spark does not have. Each comes with what to do instead."""

from collections.abc import Iterator, Sequence

from oplog_pipe.errors import ConfigError
from oplog_pipe.model.settings import OPLOG, PipeSettings, SinkSettings
from oplog_pipe.sinks.base import Fenced, Sink
from oplog_pipe.sinks.custom import CustomOptions
from oplog_pipe.sinks.parts.ownership import OwnedRows

# These do nothing.
_NOTHING = (Sink.begin_copy, OwnedRows.begin_copy)
_TOO_LATE = "cannot tell a task that comes late"


def check(settings: PipeSettings, sinks: Sequence[Sink]) -> None:
    """Raise ConfigError, which has a line per setting. ``sinks``: of the settings."""
    if problems := list(_problems(settings, sinks)):
        raise ConfigError("\n".join(problems))


def _problems(settings: PipeSettings, sinks: Sequence[Sink]) -> Iterator[str]:
    if settings.name is None:
        yield (
            "name: is missing: there is no folder on Spark, so the rows in targets belong to the"
            " name of the pipe"
        )
    for number, source in enumerate(settings.sources):
        if source.log != OPLOG:
            yield (
                f"sources[{number}].log: {source.log} is a topic; on Spark a pipe follows {OPLOG}"
                " only: use `oplog-pipe run`, or Spark's source with the option topic"
            )
    for number, (own, sink) in enumerate(zip(settings.sinks, sinks, strict=True)):
        for name, sentence in _of_sink(own, sink):
            yield f"sinks[{number}].{name}: {sentence}"


def _of_sink(own: SinkSettings, sink: Sink) -> Iterator[tuple[str, str]]:
    if own.options.exclusive:
        yield (
            "type",
            f"{own.type} writes to one machine; on Spark tasks run on many: use another type, or"
            " `oplog-pipe run`",
        )
    elif not isinstance(sink, Fenced) and not own.at_least_once:
        yield (
            "at_least_once",
            f"is missing: {own.type} {_TOO_LATE}: messages may come twice, and a deleted object"
            " may come back; set it to true if the target can live with that",
        )
    begin_copy = type(sink).begin_copy
    if isinstance(own.options, CustomOptions) and begin_copy not in _NOTHING:
        yield (
            "type",
            f"{own.type} has a begin_copy, which would be called behind the rows of a copy, right"
            " before end_copy: derive the class from oplog_pipe.sinks.base.Sink, and leave it out",
        )
