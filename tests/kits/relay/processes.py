"""Relays as processes of their own."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.kits.processes.logged import LoggedProcess

STANDALONE = ("-m", "oplog_relay", "run")
# Logs each failure of a series.
TALKATIVE = (*STANDALONE, "--debug")
EMBEDDED = ("-m", "tests.kits.relay.embedding")
BEGINS = "leading begins"
CONTINUES = "leading continues"
ENDS = "leading ends"
LOST = "leading is lost"
_TERM = re.compile(r"\bterm (\d+)")


def write_settings(
    path: Path, name: str, agents: Sequence[str], database: str, **limits: object
) -> Path:
    """Write the settings of a relay, in YAML's subset JSON."""
    settings: Mapping[str, Any] = {
        "name": name, "agents": list(agents), "database": {"url": database}, "limits": limits,
    }  # fmt: skip
    path.write_text(json.dumps(settings))
    return path


class RelayProcess(LoggedProcess):
    """A relay."""

    def __init__(
        self,
        settings: Path,
        *flags: str,
        program: Sequence[str] = STANDALONE,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__([*program, "-f", str(settings), *flags], environ)

    def counts(self) -> Counter[str]:
        return Counter({words: self.count(words) for words in (BEGINS, CONTINUES, ENDS, LOST)})

    def wait_leads(self, times: int = 1) -> int:
        """Wait until it has acquired the lead so often, and return the term."""
        return term_of(self.wait_log(BEGINS, times))


def term_of(line: str) -> int:
    """Return the term that a log line names."""
    match = _TERM.search(line)
    assert match is not None, line
    return int(match[1])
