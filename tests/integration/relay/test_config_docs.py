"""The page about the relay agrees with its settings.

With OPLOG_UPDATE_DOCS=1 the generated part is written again.
"""

import os
import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from oplog_kit.config.fields import SECRETS, Field, Kind, range_text, shown_value
from oplog_relay.config.file import load
from oplog_relay.config.tables import sections
from oplog_relay.model.settings import DatabaseSettings, RelaySettings
from tests.kits.documents import pages
from tests.kits.documents.snippets import snippets
from tests.kits.relay.settings_file import LEAST, SettingsFile

PAGE = pages.RELAY
DEFAULTS = RelaySettings("", DatabaseSettings(""))


def default(field: Field, values: Mapping[str, Any]) -> str:
    value = values.get(field.name)
    if value in ("", None):
        return ""
    if field.kind is Kind.DURATIONS or field.kind is Kind.URLS:
        return f"`[{', '.join(shown_value(field, value))}]`"
    return f"`{shown_value(field, value)}`"


def settings() -> Iterator[tuple[bool, str]]:
    """Yield for each setting whether it has a range, and its row."""
    for prefix, fields, values in sections(DEFAULTS):
        for field in fields:
            if field.kind is Kind.SECTION:
                continue
            names = [field.name, *([f"{field.name}_file"] if field.kind in SECRETS else [])]
            cells = [
                ", ".join(f"`{prefix}{name}`" for name in names),
                default(field, values),
                field.meaning,
            ]
            if found := range_text(field):
                cells.insert(2, found)
            yield bool(found), f"| {' | '.join(cells)} |"


def tables() -> str:
    blocks = []
    for has_range, rows in groupby(settings(), lambda each: each[0]):
        head = "| setting | default | range | |" if has_range else "| setting | default | |"
        line = "|---" * (head.count("|") - 1) + "|"
        blocks.append("\n".join([head, line, *(row for _, row in rows)]))
    return "\n\n".join(blocks)


def test_the_page_has_every_setting_with_its_default_range_and_meaning() -> None:
    text = PAGE.read_text()
    pattern = re.compile(r"(<!-- settings: .*? -->\n).*?(<!-- /settings -->)", re.DOTALL)
    written, parts = pattern.subn(lambda found: f"{found[1]}\n{tables()}\n\n{found[2]}", text)
    assert parts == 1
    if os.environ.get("OPLOG_UPDATE_DOCS"):
        PAGE.write_text(written)
    else:
        assert text == written, "write the generated part again with OPLOG_UPDATE_DOCS=1"


def test_the_files_and_mistakes_on_the_page_are_real(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "oplog-password").write_text("secret\n")
    files = [snippet.code for snippet in snippets(PAGE) if snippet.language == "yaml"]
    assert files[0] == LEAST
    file = SettingsFile(tmp_path)
    for text in files:
        assert load(file.write(text), {"ORDERS_DB_PASSWORD": "other"}).name == "orders"
    (told,) = (snippet.code for snippet in snippets(PAGE) if "hearbeat" in snippet.code)
    wrong = f"{LEAST}limits:\n  hearbeat: 2s\n  batch: 500\n"
    assert file.mistakes(wrong) == told.splitlines()
