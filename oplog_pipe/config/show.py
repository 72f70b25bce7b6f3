"""Settings as YAML for people: with all defaults and without secrets."""

from collections.abc import Sequence
from typing import Any

from oplog_kit.config.fields import Field, shown_text, shown_values
from oplog_pipe.config import tables
from oplog_pipe.model.settings import FetchStep, FunctionStep, PipeSettings, SinkSettings


def shown(settings: PipeSettings) -> str:
    """Return the effective settings as YAML, without secrets."""
    document = _section(tables.PIPE, settings)
    document["sources"] = [_section(tables.SOURCE, each) for each in settings.sources]
    document["sinks"] = [_sink(each) for each in settings.sinks]
    return shown_text(document)


def _sink(sink: SinkSettings) -> dict[str, Any]:
    document = _section(tables.SINK, sink)
    document["transforms"] = [_step(each) for each in sink.transforms]
    document["tables"] = {each.name: _section(tables.TABLE, each) for each in sink.tables}
    document["batch"] = _section(tables.BATCH, sink.batch)
    return {**document, **_section(sink.options.settings, sink.options)}


def _step(step: FunctionStep | FetchStep) -> dict[str, Any]:
    if isinstance(step, FunctionStep):
        return _section(tables.FUNCTION, step)
    return {"fetch": _section(tables.FETCH, step), "namespace": step.namespace}


def _section(fields: Sequence[Field], values: Any) -> dict[str, Any]:
    return shown_values(fields, values_of(values))


def values_of(settings: Any) -> dict[str, Any]:
    """Return the values of settings by name. The files for TLS are a part of their own."""
    tls = getattr(settings, "tls", None)
    return {**vars(settings), **(vars(tls) if tls else {})}
