"""Messages name a file without its folder."""

from pathlib import Path

import pytest

from oplogd.web.http.problem import without_folders


@pytest.mark.parametrize(
    ("text", "files", "told"),
    [
        ("store /srv/a/oplog.db: gone", [Path("/srv/a/oplog.db")], "store oplog.db: gone"),
        ("store a/oplog.db: gone", [Path("a/oplog.db")], "store oplog.db: gone"),
        (
            f"store {Path('a/oplog.db').absolute()}: gone",
            [Path("a/oplog.db")],
            "store oplog.db: gone",
        ),
        ("store oplog.db: gone", [Path("oplog.db")], "store oplog.db: gone"),
        (
            "spool /b/s.db: full, store /a/o.db too",
            [Path("/a/o.db"), Path("/b/s.db")],
            "spool s.db: full, store o.db too",
        ),
        ("MongoDB at db:27017: away", [Path("oplog.db"), None], "MongoDB at db:27017: away"),
    ],
)
def test_a_file_is_named_without_its_folder(text: str, files: list[Path | None], told: str) -> None:
    assert without_folders(text, files) == told
