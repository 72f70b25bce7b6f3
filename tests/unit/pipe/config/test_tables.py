"""The tables of the settings agree with the values that they are read into."""

import dataclasses
from typing import Any

import pytest

from oplog_pipe.config import tables
from oplog_pipe.config.build import OPTIONS
from oplog_pipe.config.fields import Field
from oplog_pipe.model.options import TlsOptions
from oplog_pipe.model.settings import (
    Batch,
    FetchStep,
    FunctionStep,
    PipeSettings,
    SinkSettings,
    SourceSettings,
)

TLS = {each.name for each in dataclasses.fields(TlsOptions)}


@pytest.mark.parametrize(
    ("fields", "kind", "apart"),
    [
        (tables.PIPE, PipeSettings, {"root"}),
        (tables.SOURCE, SourceSettings, set()),
        (tables.SINK, SinkSettings, {"options"}),
        (tables.BATCH, Batch, set()),
        (tables.FUNCTION, FunctionStep, set()),
        (tables.FETCH, FetchStep, {"namespace"}),
        *[(tables.TYPES[name], OPTIONS[name], set()) for name in OPTIONS],
    ],
)
def test_every_value_has_a_setting_of_its_name_and_the_reverse(
    fields: tuple[Field, ...], kind: Any, apart: set[str]
) -> None:
    own = {each.name for each in dataclasses.fields(kind)}
    if "tls" in own:
        own = own - {"tls"} | TLS
    assert own - apart == {field.name for field in fields}


def test_every_type_of_a_sink_has_a_table_and_options() -> None:
    assert tables.TYPES.keys() == OPTIONS.keys()


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        (tables.PIPE, PipeSettings),
        (tables.SOURCE, SourceSettings),
        (tables.SINK, SinkSettings),
        (tables.BATCH, Batch),
        (tables.FETCH, FetchStep),
        *[(tables.TYPES[name], OPTIONS[name]) for name in OPTIONS],
    ],
)
def test_defaults_keep_to_the_ranges_and_choices(fields: tuple[Field, ...], kind: Any) -> None:
    values = {each.name: each.default for each in dataclasses.fields(kind)}
    for field in fields:
        value = values.get(field.name)
        if field.most and value is not None:
            assert field.least <= value <= field.most, field.name  # type: ignore[operator]
        if field.choices and value is not None:
            assert value in field.choices, field.name
