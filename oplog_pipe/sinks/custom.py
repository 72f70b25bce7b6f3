"""Sinks users bring."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from oplog_pipe.errors import ConfigError
from oplog_pipe.model.fields import Field, Kind
from oplog_pipe.model.imports import load
from oplog_pipe.model.options import SinkOptions
from oplog_pipe.model.reasons import of_code
from oplog_pipe.sinks.base import Sink

_METHODS = ("open", "write", "begin_copy", "end_copy", "close")


@dataclass(frozen=True)
class CustomOptions(SinkOptions):
    """``target``: ``module:Class``. ``options``: its keyword arguments."""

    settings = (
        Field(
            "options",
            Kind.ANY_MAPPING,
            "Keyword arguments of the class. Their values are hidden.",
        ),
    )
    identity = ("target",)

    target: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def sink(self, namespace: str, root: Path) -> Sink:
        """Import the class and create its object with the arguments. Raises ConfigError.

        A class needs all methods of ``Sink``, a subclass of ``Sink`` only ``write``.
        """
        make = load(self.target, root)
        missing = [name for name in _METHODS if not callable(getattr(make, name, None))]
        if not isinstance(make, type):
            raise ConfigError(f"{self.target}: is no class")
        if getattr(make, "write", None) is Sink.write:
            missing.append("write")
        if missing:
            raise ConfigError(
                f"{self.target}: the class has no {', '.join(missing)}; a subclass of"
                " oplog_pipe.sinks.base.Sink needs only write"
            )
        try:
            return cast(Sink, make(**self.options))
        except (Exception, SystemExit) as error:  # the class's own code runs here
            reason = f"{self.target}: the sink cannot be created: {of_code(error)}"
            raise ConfigError(reason) from error
