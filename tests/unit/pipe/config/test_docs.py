"""The page about the pipe agrees with its settings.

With OPLOG_UPDATE_DOCS=1 the generated part is written again.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from oplog_kit.config.fields import SECRETS, range_text, shown_value
from oplog_pipe.config import load, tables
from oplog_pipe.config.show import values_of
from oplog_pipe.errors import ConfigError
from oplog_pipe.model.fields import Field, Kind
from oplog_pipe.model.settings import (
    BatchLimits,
    FetchStep,
    FunctionStep,
    PipeSettings,
    SinkSettings,
    SourceSettings,
)
from oplog_pipe.sinks.custom import CustomOptions
from oplog_pipe.sinks.registry import types
from tests.kits.documents import pages
from tests.kits.documents.snippets import snippets

PAGE = pages.PIPE
# Values that a setting has if nothing but the required ones is given.
REQUIRED = {"path": "", "url": "", "urls": (), "database": "", "agents": (), "target": ""}


def blank(kind: type[Any]) -> Any:
    """Return settings with nothing but the required values, which are empty."""
    needed = {name: REQUIRED[name] for name in REQUIRED if name in kind.__annotations__}
    return kind(**needed)


def sections() -> Iterator[tuple[str, Sequence[Field], Any]]:
    """Yield the title of each table, its settings, and the values by default."""
    options = CustomOptions("")
    yield "The pipe", tables.PIPE, PipeSettings(Path(), Path(), (), ())
    yield "Each of `sources`", tables.SOURCE, SourceSettings("", ())
    yield "Each of `sinks`", tables.SINK, SinkSettings("", "", options)
    yield "`batch`", tables.BATCH, BatchLimits()
    yield "Each of `transforms`", tables.STEP, FunctionStep("")
    yield "`fetch` of a transform", tables.FETCH, FetchStep()
    for name, kind in types().items():
        yield f"`type: {name}`", kind.settings, blank(kind)
    yield "`type: module:Class`", options.settings, options


def default(field: Field, values: Any) -> str:
    if field.required or field.kind in (Kind.SECTION, Kind.ANY_MAPPING) or field.name == "name":
        return ""
    value = shown_value(field, values_of(values)[field.name])
    if value is None or value == {} or value == "":
        return ""
    return f"`{str(value).lower() if field.kind is Kind.FLAG else value}`"


def parts() -> str:
    blocks = []
    for title, fields, values in sections():
        has_ranges = any(range_text(field) for field in fields)
        head = "| setting | default | range | |" if has_ranges else "| setting | default | |"
        rows = [f"**{title}**\n", head, "|---" * (head.count("|") - 1) + "|"]
        for field in fields:
            value = "" if field.name == "function" else default(field, values)
            name = f"`{field.name}`"
            if field.kind in SECRETS:
                name += f", `{field.name}_file`"
            cells = [name, value, field.meaning.replace("|", "\\|")]
            if has_ranges:
                cells.insert(2, range_text(field))
            rows.append(f"| {' | '.join(cells)} |")
        blocks.append("\n".join(rows))
    return "\n\n".join(blocks)


def test_the_page_has_every_setting_with_its_default_range_and_meaning() -> None:
    text = PAGE.read_text()
    pattern = re.compile(r"(<!-- settings: .*? -->\n).*?(<!-- /settings -->)", re.DOTALL)
    written, found = pattern.subn(lambda each: f"{each[1]}\n{parts()}\n\n{each[2]}", text)
    assert found == 1
    if os.environ.get("OPLOG_UPDATE_DOCS"):
        PAGE.write_text(written)
    else:
        assert text == written, "write the generated part again with OPLOG_UPDATE_DOCS=1"


def test_the_tables_are_those_of_all_settings() -> None:
    for _, fields, values in sections():
        for field in fields:
            if field.kind is not Kind.SECTION and field.name != "options":
                assert hasattr(values, field.name) or hasattr(values.tls, field.name)


def files_on_the_page() -> list[str]:
    """Return the settings files; a part of one begins in its second line and is put into one."""
    whole = []
    for snippet in snippets(PAGE):
        if snippet.language != "yaml":
            continue
        least = "dir: ./pipe\nsources: [{agents: [http://localhost:8042]}]\n"
        if snippet.code.startswith("sinks:"):
            whole.append(least + snippet.code)
        elif snippet.prose.rstrip().endswith("has:") or "transforms:" in snippet.first:
            sink = "sinks:\n  - name: search\n    type: file\n    path: out.jsonl\n    "
            whole.append(least + sink + snippet.code.replace("\n", "\n    "))
        elif snippet.code.startswith("- name"):
            whole.append(least + "sinks:\n" + snippet.code)
        else:
            whole.append(snippet.code)
    return whole


def test_the_files_and_mistakes_on_the_page_are_real(tmp_path: Path) -> None:
    (tmp_path / "oplog-password").write_text("secret\n")
    (tmp_path / "api-password").write_text("secret\n")
    texts = files_on_the_page()
    assert len(texts) == 5
    path = tmp_path / "pipe.yaml"
    for text in texts:
        path.write_text(text)
        assert load(path, {"SEARCH_API_KEY": "other"}).sources[0].agents
    (told,) = (snippet.code for snippet in snippets(PAGE) if snippet.language == "text")
    path.write_text(texts[0].replace("path:", "batch: {mesages: 5000}, start: now, path:"))
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert [line.removeprefix(f"{tmp_path}/") for line in str(caught.value).splitlines()] == (
        told.splitlines()
    )
