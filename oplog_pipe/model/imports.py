"""Loads the modules users bring: transforms and sinks."""

import importlib
import sys
from pathlib import Path
from typing import Any

from oplog_pipe.errors import ConfigError


def load(target: str, root: Path) -> Any:
    """Return the object ``module:name``. The folder ``root`` comes first in the search for modules.

    Raises ConfigError, which names the target.
    """
    module_name, colon, name = target.partition(":")
    if not (module_name and colon and name):
        raise ConfigError(f"{target!r} is no target: give module:name")
    folder = str(root.resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # the module's own code runs here
        raise ConfigError(
            f"{target}: the module cannot be imported: {type(error).__name__}: {error}"
        ) from error
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ConfigError(f"{target}: the module has no {name!r}") from None
    return found
