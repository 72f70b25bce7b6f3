"""pipe.json and the checkpoints of sources: damage is an error, never another value."""

from collections.abc import Callable
from pathlib import Path

import pytest

from oplog_pipe.commitlog.about import About, load_about, save_about
from oplog_pipe.commitlog.files import FILES
from oplog_pipe.errors import LogDamagedError
from oplog_pipe.follow.checkpoints import Checkpoints, SourceCheckpoint, Witness

ABOUT = About(1_700_000_000_000, 41, "0123456789abcdef")
CHECKPOINT = SourceCheckpoint(
    "system/oplog", "545b55c7f095528dd0f38600", 7, 3, 4, 5, "a" * 32, Witness("5", "b" * 24)
)


def about(folder: Path) -> tuple[Path, Callable[[], object]]:
    save_about(FILES, folder, ABOUT)
    return folder / "pipe.json", lambda: load_about(FILES, folder)


def checkpoint(folder: Path) -> tuple[Path, Callable[[], object]]:
    checkpoints = Checkpoints(folder)
    checkpoints.save("oplog", CHECKPOINT)
    return checkpoints.path("oplog"), lambda: checkpoints.load("oplog")


def value_or_error(load: Callable[[], object]) -> object:
    try:
        return load()
    except LogDamagedError as error:
        return error


FILES_AND_CONTENTS = pytest.mark.parametrize(
    ("made", "content"), [(about, ABOUT), (checkpoint, CHECKPOINT)]
)
Made = Callable[[Path], tuple[Path, Callable[[], object]]]


@FILES_AND_CONTENTS
def test_whatever_byte_is_changed_no_other_value_is_read(
    made: Made, content: object, tmp_path: Path
) -> None:
    path, load = made(tmp_path)
    assert load() == content
    raw = path.read_bytes()
    for place in range(len(raw)):
        for change in (1, 2, 128):
            path.write_bytes(raw[:place] + bytes([raw[place] ^ change]) + raw[place + 1 :])
            found = value_or_error(load)
            assert found == content or f"{path} is damaged" in str(found)
        path.write_bytes(raw[:place])
        with pytest.raises(LogDamagedError):
            load()


@pytest.mark.parametrize(
    ("made", "digits", "words"),
    [
        (about, (b":41", b":47"), "restore the folder from a backup, or begin with an empty one"),
        (checkpoint, (b":7,", b":1,"), "take it away, then the position is looked up in the log"),
    ],
)
def test_damage_names_the_file_and_the_remedy(
    made: Made, digits: tuple[bytes, bytes], words: str, tmp_path: Path
) -> None:
    path, load = made(tmp_path)
    path.write_bytes(path.read_bytes().replace(*digits))
    with pytest.raises(LogDamagedError, match=f"{path} is damaged: its CRC32 is wrong; {words}"):
        load()


def test_files_of_an_earlier_release_are_read(tmp_path: Path) -> None:
    path, load = about(tmp_path)
    path.write_bytes(b'{"created":5,"compacted":-1}')
    assert load() == About(5)
    path, load = checkpoint(tmp_path)
    path.write_bytes(
        b'{"log":"system/oplog","position":"9","end":7,"copy":3,"copied":4,"copy_total":null}'
    )
    assert load() == SourceCheckpoint("system/oplog", "9", 7, 3, 4)
