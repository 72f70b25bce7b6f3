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
    """Return the files to send: the modules in the folder of the settings that are imported.

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
    for target in targets:
        load(target, root)
    names = {name.partition(".")[0] for name in sys.modules}
    found = []
    for name in sorted(names.difference(_OURS)):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is None:
            continue
        place = Path(file).resolve()
        if place == (root / f"{name}.py").resolve():
            found.append(root / f"{name}.py")
        elif place == (root / name / "__init__.py").resolve():
            found.append(_archive(root / name, folder / f"{name}.zip"))
    return found


def _archive(package: Path, path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(package.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(package.parent))
    return path
