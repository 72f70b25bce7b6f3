"""Files with settings of a relay."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from oplog_relay.config.file import load
from oplog_relay.model.errors import ConfigError

LEAST = """\
name: orders                                   # the leader group
agents: [http://localhost:8042]
database: {url: "sqlite:///app.db"}            # or postgresql://user@host/db
"""


class SettingsFile:
    """``relay.yaml`` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "relay.yaml"

    def write(self, text: str) -> Path:
        self.path.write_text(text)
        return self.path

    def write_values(self, values: dict[str, Any]) -> Path:
        """Write values by their paths, such as ``limits.poll``."""
        document: dict[str, Any] = {}
        for path, value in values.items():
            section = document
            *parents, name = path.split(".")
            for parent in parents:
                section = section.setdefault(parent, {})
            section[name] = value
        return self.write(yaml.safe_dump(document))

    def mistakes(self, text: str, **environ: str) -> list[str]:
        """Return what ``load`` says about a text, without the folder of the file."""
        with pytest.raises(ConfigError) as raised:
            load(self.write(text), environ)
        return str(raised.value).replace(f"{self.path.parent}/", "").splitlines()
