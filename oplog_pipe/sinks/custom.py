"""Sinks that users bring."""

from pathlib import Path
from typing import cast

from oplog_pipe.errors import ConfigError
from oplog_pipe.model.imports import load
from oplog_pipe.model.options import CustomOptions
from oplog_pipe.model.reasons import of_code
from oplog_pipe.sinks.base import Sink

_METHODS = ("open", "write", "begin_copy", "end_copy", "close")


def custom_sink(options: CustomOptions, root: Path) -> Sink:
    """Import the class and create its object with the arguments. Raises ConfigError.

    The class has all methods of ``Sink``. A subclass of ``Sink`` inherits those that do nothing,
    and needs ``write`` only.
    """
    make = load(options.target, root)
    missing = [name for name in _METHODS if not callable(getattr(make, name, None))]
    if not isinstance(make, type):
        raise ConfigError(f"{options.target}: is no class")
    if getattr(make, "write", None) is Sink.write:
        missing.append("write")
    if missing:
        raise ConfigError(
            f"{options.target}: the class has no {', '.join(missing)}; a subclass of"
            " oplog_pipe.sinks.base.Sink needs only write"
        )
    try:
        return cast(Sink, make(**options.arguments))
    except (Exception, SystemExit) as error:  # the class's own code runs here
        raise ConfigError(
            f"{options.target}: the sink cannot be created: {of_code(error)}"
        ) from error
