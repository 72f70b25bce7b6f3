"""The modules of users that tasks import: they travel with the query."""

import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

from oplog_pipe.model.imports import load
from oplog_pipe.model.settings import FunctionStep, SinkSettings
from oplog_pipe.sinks.custom import CustomOptions

# Installed on all machines, also if they are imported from a checkout.
_OURS = ("oplogd", "oplog_kit", "oplog_pipe", "oplog_relay", "oplog_sync", "oplogc")


def user_files(sinks: Iterable[SinkSettings], root: Path, folder: Path) -> list[Path]:
    """Return the files to send: modules in the folder of the settings, and what they import there.

    ``folder``: gets an archive of each package. Raises ConfigError.
    """
    targets = [
        *(each.options.target for each in sinks if isinstance(each.options, CustomOptions)),
        *(
            step.function
            for each in sinks
            for step in each.transforms
            if isinstance(step, FunctionStep)
        ),
    ]
    before = set(sys.modules)
    for target in targets:
        load(target, root)
    names = {name.partition(".")[0] for name in set(sys.modules) - before}
    names |= {target.partition(":")[0].partition(".")[0] for target in targets}
    found = []
    for name in sorted(names.difference(_OURS)):
        module, package = root / f"{name}.py", root / name
        if (package / "__init__.py").is_file():
            found.append(_archive(package, folder / f"{name}.zip"))
        elif module.is_file():
            found.append(module)
    return found


def _archive(package: Path, path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(package.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(package.parent))
    return path
