"""Settings as YAML for people: with all defaults and without secrets."""

from collections.abc import Sequence
from typing import Any

import httpx
import yaml

from oplog_kit.units import duration_text, size_text
from oplog_kit.urls import hide_password
from oplog_pipe.config import tables
from oplog_pipe.model.fields import Field, Kind
from oplog_pipe.model.reasons import of_url
from oplog_pipe.model.settings import FetchStep, FunctionStep, PipeSettings, SinkSettings
from oplogc.http.address import shown as address_shown

HIDDEN = "***"


def shown(settings: PipeSettings) -> str:
    """Return the effective settings as YAML, without secrets."""
    document = _section(tables.PIPE, settings)
    document["sources"] = [_section(tables.SOURCE, each) for each in settings.sources]
    document["sinks"] = [_sink(each) for each in settings.sinks]
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return text


def _sink(sink: SinkSettings) -> dict[str, Any]:
    document = _section(tables.SINK, sink)
    document["transforms"] = [_step(each) for each in sink.transforms]
    document["batch"] = _section(tables.BATCH, sink.batch)
    return {**document, **_section(sink.options.settings, sink.options)}


def _step(step: FunctionStep | FetchStep) -> dict[str, Any]:
    if isinstance(step, FunctionStep):
        return _section(tables.FUNCTION, step)
    return {"fetch": _section(tables.FETCH, step), "namespace": step.namespace}


def _section(fields: Sequence[Field], values: Any) -> dict[str, Any]:
    return {
        field.name: value_text(field, value_of(values, field.name))
        for field in fields
        if field.kind is not Kind.SECTION
    }


def value_of(values: Any, name: str) -> Any:
    """Return the value of a setting: the files for TLS are a part of their own."""
    has_it = hasattr(values, name)
    return getattr(values if has_it else values.tls, name)


def value_text(field: Field, value: Any) -> Any:
    """Return a value as the file may have it, without secrets."""
    if value is None:
        return None
    match field.kind:
        case Kind.SECRET:
            return HIDDEN
        case Kind.URL:
            return _url(value)
        case Kind.HOOK:
            return of_url(value, HIDDEN)
        case Kind.URLS:
            return [_url(each) for each in value]
        case Kind.SECRET_MAPPING | Kind.ANY_MAPPING:
            return dict.fromkeys(value, HIDDEN)
        case Kind.TEXT_MAPPING:
            return dict(value)
        case Kind.DURATION:
            return duration_text(value)
        case Kind.SIZE:
            return size_text(value)
        case Kind.FILE:
            return str(value)
    return value


def _url(url: str) -> str:
    return address_shown(httpx.URL(url)) if url.startswith("http") else hide_password(url, HIDDEN)
