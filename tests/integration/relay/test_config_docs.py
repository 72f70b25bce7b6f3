"""The page about the relay agrees with its settings.

With OPLOG_UPDATE_DOCS=1 the generated part is written again.
"""

import os
import re
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from oplog_kit.units import duration_text
from oplog_relay.config.fields import FIELDS, Field, Kind, range_text
from oplog_relay.config.file import load
from oplog_relay.model.settings import DatabaseSettings, RelaySettings
from tests.kits.documents import pages
from tests.kits.documents.snippets import snippets
from tests.kits.relay.settings_file import LEAST, SettingsFile

PAGE = pages.RELAY
DEFAULTS = RelaySettings("", DatabaseSettings(""))


def default(field: Field) -> str:
    value: Any = field.value_in(DEFAULTS) if field.is_effective else ""
    if value in ("", None):
        return ""
    if field.kind is Kind.DURATION:
        return f"`{duration_text(value)}`"
    if field.kind is Kind.DURATIONS:
        return f"`[{', '.join(map(duration_text, value))}]`"
    if field.kind is Kind.TEXTS:
        return f"`[{', '.join(value)}]`"
    return f"`{value}`"


def tables() -> str:
    blocks = []
    for has_range, fields in groupby(FIELDS, lambda field: bool(range_text(field))):
        head = "| setting | default | range | |" if has_range else "| setting | default | |"
        rows = [head, "|---" * (head.count("|") - 1) + "|"]
        for field in fields:
            cells = [f"`{field.path}`", default(field), field.meaning]
            if has_range:
                cells.insert(2, range_text(field))
            rows.append(f"| {' | '.join(cells)} |")
        blocks.append("\n".join(rows))
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
    wrong = f"{LEAST}limits:\n  hearbeat: 2s\n  session: 5s\n"
    assert file.mistakes(wrong) == told.splitlines()
