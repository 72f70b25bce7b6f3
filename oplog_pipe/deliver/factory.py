"""Makes sinks from settings."""

from pathlib import Path

from oplog_pipe.errors import ConfigError
from oplog_pipe.model.settings import SinkSettings
from oplog_pipe.sinks.base import Sink


def build(settings: SinkSettings, root: Path) -> Sink:
    """Return a sink, not yet open. Raises ConfigError, which names the sink.

    ``root``: folder of the settings file.
    """
    if settings.select is not None or settings.tables:
        name = "tables" if settings.select is None else "select"
        raise ConfigError(f"sink {settings.name}: {name} is for `oplog-pipe spark` only")
    # A transform may write to namespaces the sink's expression does not match.
    namespace = ".*" if settings.transforms else settings.namespace
    try:
        made: Sink = settings.options.sink(namespace, root)
        return made
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"sink {settings.name}: type {settings.type} needs the package {error.name}; in the"
            " checkout of oplog, run: pip install -c constraints.txt '.[pipe]' ./clients/python"
        ) from None
    except (ConfigError, ValueError) as error:
        raise ConfigError(f"sink {settings.name}: {error}") from error.__cause__
