"""The settings file of a pipe: reads it, and shows settings without secrets."""

from collections.abc import Mapping
from pathlib import Path

from oplog_kit.config.reader import load_settings
from oplog_pipe.config import hints
from oplog_pipe.config.build import pipe
from oplog_pipe.config.show import shown
from oplog_pipe.model.settings import PipeSettings

__all__ = ["load", "shown"]


def load(path: str | Path, environ: Mapping[str, str] | None = None) -> PipeSettings:
    """Read the settings from a file. Raises ConfigError, which lists every mistake.

    ``environ``: the environment; None: the process's own.
    """
    root = Path(path).absolute().parent
    return load_settings(path, environ, "OPLOG_PIPE_", pipe, root, hints.of_setting)
