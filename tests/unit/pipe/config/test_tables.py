"""The tables of the settings agree with the values that they are read into."""

import dataclasses
from typing import Any

import pytest

from oplog_pipe.config import tables
from oplog_pipe.model.fields import Field
from oplog_pipe.model.options import TlsOptions
from oplog_pipe.model.settings import (
    BatchLimits,
    FetchStep,
    FunctionStep,
    PipeSettings,
    SinkSettings,
    SourceSettings,
)
from oplog_pipe.sinks.registry import types

TLS = {each.name for each in dataclasses.fields(TlsOptions)}


@pytest.mark.parametrize(
    ("fields", "kind", "apart"),
    [
        (tables.PIPE, PipeSettings, {"root"}),
        (tables.SOURCE, SourceSettings, set()),
        (tables.SINK, SinkSettings, {"options"}),
        (tables.BATCH, BatchLimits, set()),
        (tables.FUNCTION, FunctionStep, set()),
        (tables.FETCH, FetchStep, {"namespace"}),
        *[(each.settings, each, set()) for each in types().values()],
    ],
)
def test_every_value_has_a_setting_of_its_name_and_the_reverse(
    fields: tuple[Field, ...], kind: Any, apart: set[str]
) -> None:
    own = {each.name for each in dataclasses.fields(kind)}
    if "tls" in own:
        own = own - {"tls"} | TLS
    assert own - apart == {field.name for field in fields}


def test_the_values_that_the_engine_names_are_options_of_the_type() -> None:
    for each in types().values():
        named = {*each.identity, *filter(None, (each.place, each.exclusive))}
        assert named <= {field.name for field in dataclasses.fields(each)}, each.type_name
        assert not each.place or {each.place, "id"} <= {*each.identity}


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        (tables.PIPE, PipeSettings),
        (tables.SOURCE, SourceSettings),
        (tables.SINK, SinkSettings),
        (tables.BATCH, BatchLimits),
        (tables.FETCH, FetchStep),
        *[(each.settings, each) for each in types().values()],
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
