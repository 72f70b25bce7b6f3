"""The types of sinks: options in the modules and folders beside this one, found by their names.

A module defines a subclass of ``SinkOptions`` with a ``type_name``. Its import needs no driver.
"""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from oplog_pipe import sinks
from oplog_pipe.model.options import SinkOptions
from oplog_pipe.sinks.custom import CustomOptions


@cache
def types() -> dict[str, type[SinkOptions]]:
    """Return the options of each type by its name, in the order of the names."""
    found = {}
    for module in iter_modules(sinks.__path__):
        for each in vars(import_module(f"{sinks.__name__}.{module.name}")).values():
            if isinstance(each, type) and issubclass(each, SinkOptions) and each.type_name:
                found[each.type_name] = each
    return dict(sorted(found.items()))


def type_names() -> list[str]:
    """Return the names and aliases of all types."""
    return sorted([*types(), *(alias for each in types().values() for alias in each.aliases)])


def type_of(name: str) -> type[SinkOptions] | None:
    """Return the options of a type. ``name``: may be an alias, or ``module:Class``."""
    if ":" in name:
        return CustomOptions
    return next(
        (each for each in types().values() if name in (each.type_name, *each.aliases)), None
    )
