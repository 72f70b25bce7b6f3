"""The settings file of a pipe: reads it, and shows settings without secrets."""

import os
from collections.abc import Mapping
from pathlib import Path

from oplog_kit.yaml_file import read_yaml
from oplog_pipe.config.build import pipe
from oplog_pipe.config.reader import Reader
from oplog_pipe.config.show import shown
from oplog_pipe.errors import ConfigError
from oplog_pipe.model.settings import PipeSettings
from oplogc.terminal.variables import unknown_variable

__all__ = ["load", "shown"]

_PREFIX = "OPLOG_PIPE_"
_VARIABLES = ("OPLOG_PIPE_LISTEN",)


def load(path: str | Path, environ: Mapping[str, str] | None = None) -> PipeSettings:
    """Read the settings from a file. Raises ConfigError, which lists every mistake.

    ``environ``: the environment; None: the process's own.
    """
    environ = os.environ if environ is None else environ
    reader = Reader(str(path), Path(path).absolute().parent, environ)
    try:
        node = read_yaml(path)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    settings = pipe(reader, node)
    for name in environ:
        if sentence := unknown_variable({name: environ[name]}, _PREFIX, _VARIABLES):
            reader.mistakes.add("", sentence)
    if reader.mistakes:
        raise ConfigError(str(reader.mistakes))
    return settings
