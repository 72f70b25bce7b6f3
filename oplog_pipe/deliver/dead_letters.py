"""The file for messages a sink refuses for good."""

import os
from pathlib import Path

import msgspec

from oplog_kit.disk import disk_failure
from oplog_pipe.commitlog.files import FILE_MODE, FILES
from oplog_pipe.errors import SinkError
from oplog_pipe.message import Message


class DeadLetters:
    """Adds JSON lines to a file: a message as the log has it, and the reason.

    A message may have two lines after a crash. The file is created by the first one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, message: Message, reason: str) -> None:
        """Add a line. It is on disk when this returns. Raises SinkError."""
        names = ("offset", "op", "timestamp", "namespace", "id")
        members = {name: getattr(message, name) for name in names}
        members |= {"data": msgspec.Raw(message.json()), "error": reason}
        line = msgspec.json.encode(members)
        try:
            is_new = not self._path.exists()
            with open(self._path, "ab+", opener=_private) as file:
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":  # a crash has torn the last line
                        line = b"\n" + line
                file.write(line + b"\n")
                file.flush()
                os.fsync(file.fileno())
            if is_new:
                FILES.sync_folder(self._path.parent)
        except OSError as error:
            told = disk_failure(error, self._path, "dead_letter")
            raise SinkError(f"dead_letter: {told}") from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)
