"""Files with settings of a pipe."""

from pathlib import Path

import pytest

from oplog_pipe.config import load
from oplog_pipe.errors import ConfigError

LEAST = """\
dir: ./pipe
sources: [{agents: [http://localhost:8042], log: system/oplog}]
sinks: [{name: copy, type: file, path: out.jsonl}]
"""
HEAD = "dir: d\nsources: [{agents: [http://a:1]}]\n"
# Sentence of a mistake: a text looks like another type.
QUOTES = "must be text; put a number or a word such as yes in quotes"


class SettingsFile:
    """``pipe.yaml`` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "pipe.yaml"

    def write(self, text: str) -> Path:
        self.path.write_text(text)
        return self.path

    def mistakes(self, text: str, **environ: str) -> list[str]:
        """Return what ``load`` says about a text, without the folder of the file."""
        with pytest.raises(ConfigError) as raised:
            load(self.write(text), environ)
        return str(raised.value).replace(f"{self.path.parent}/", "").splitlines()


def sinks(*lines: str) -> str:
    """Return settings with sinks of these members."""
    return "".join([HEAD, "sinks:\n", *(f"  - {{{line}}}\n" for line in lines)])
