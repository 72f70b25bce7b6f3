"""What the job was told: its flags, read once and checked."""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Literal, NoReturn, cast

import oplogd
from oplog_sync.backend.base import NEW_LOG, NewLog
from oplog_sync.errors import EXIT_USAGE
from oplog_sync.guard import Limit

MAX_DELETES = Limit(20, is_percentage=True)
MAX_CHANGES = Limit(60, is_percentage=True)

FORMATS = ("json", "parquet", "csv", "jdbc")

_UNITS = {"": 0, "k": 10, "m": 20, "g": 30}
_SIZE = re.compile(r"(\d+)\s*([kmg]?)(?:i?b)?", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """``store``: path or URL. ``new_log`` counts where the store is created. ``types`` empty: all.

    ``max_rate``: corrections per second, None is no limit.
    """

    dumps: tuple[str, ...]
    store: str = field(repr=False)
    format: Literal["json", "parquet", "csv", "jdbc"] = "json"
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    types: frozenset[str] = frozenset()
    max_deletes: Limit = MAX_DELETES
    max_changes: Limit = MAX_CHANGES
    max_rate: int | None = None
    new_log: NewLog = NEW_LOG
    report: str | None = None
    master: str | None = None
    dry_run: bool = False
    skip_invalid: bool = False
    force: bool = False
    debug: bool = False


def parse(argv: Sequence[str]) -> Settings:
    """``argv`` is without the program's name. Raises SystemExit: 2 after a sentence on stderr, 0 after --help."""
    parser = _parser()
    given = parser.parse_args(argv)
    if not given.dumps and given.format != "jdbc":
        parser.error("name the dump: files, folders or patterns, or - for standard input")
    if given.dumps and given.format == "jdbc":
        parser.error(
            "--format jdbc: the dump is named by --option url=... and --option dbtable=..., not by a path"
        )
    if "-" in given.dumps and (len(given.dumps) > 1 or given.format != "json"):
        parser.error("-: standard input is read as JSON lines and excludes other dumps")
    if given.store is not None and given.mongo_url is not None:
        parser.error("--store and --mongo-url exclude each other")
    if given.log_collection is not None and given.mongo_url is None:
        parser.error("--log-collection is for --mongo-url")
    if given.report is not None and any(_lies_in(given.report, dump) for dump in given.dumps):
        parser.error(
            "--report: it lies in the dump, and the next run would read it as rows; name a path outside"
        )
    return Settings(
        dumps=tuple(given.dumps),
        store=given.mongo_url or given.store or "oplog.db",
        format=cast(Literal["json", "parquet", "csv", "jdbc"], given.format),
        options=tuple(given.option),
        types=frozenset(given.types),
        max_deletes=given.max_deletes,
        max_changes=given.max_changes,
        max_rate=given.max_rate,
        new_log=NewLog(given.capped_collection_size, given.log_collection or NEW_LOG.collection),
        report=given.report,
        master=given.master,
        dry_run=given.dry_run,
        skip_invalid=given.skip_invalid,
        force=given.force,
        debug=given.debug,
    )


def _lies_in(report: str, dump: str) -> bool:
    """Whether a folder or pattern of the dump holds the report's path."""
    path, given = (
        PurePath(text if ":/" in text else os.path.abspath(text)) for text in (report, dump)
    )
    folders = (path, *path.parents)
    return given in folders or any(fnmatchcase(str(folder), str(given)) for folder in folders)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message.removeprefix('argument ')}", file=sys.stderr)
        raise SystemExit(EXIT_USAGE)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="oplog-sync",
        usage="oplog-sync [FLAG ...] DUMP ...",
        description="Compares a dump of the source with the objects an oplog knows, and emits what corrects the oplog.",
        epilog="Exit codes: 0 done, 1 failed, 2 wrong flags, 3 more deletes than allowed, 4 invalid rows, 5 empty dump,"
        " 6 more changes than allowed, 7 rows of the future. With 3 to 7 nothing was emitted.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "dumps",
        nargs="*",
        metavar="DUMP",
        help="File, folder, pattern or Hadoop path, also .gz or .zst; - is stdin.",
    )
    add(
        "--store",
        metavar="PATH",
        type=_text,
        help="The SQLite file of the oplog. Default: oplog.db.",
    )
    add(
        "--mongo-url",
        metavar="URL",
        type=_mongo_url,
        help="The oplog is in MongoDB, at mongodb://...",
    )
    add(
        "--types",
        metavar="A,B",
        type=_types,
        default=[],
        help="Compare only objects of these types.",
    )
    add(
        "--format",
        choices=FORMATS,
        default="json",
        help="What the dump is; json: an object a line. Default: json.",
    )
    add(
        "--option",
        metavar="K=V",
        type=_option,
        action="append",
        default=[],
        help="Option for Spark's reader. Repeat.",
    )
    add(
        "--max-deletes",
        metavar="N|P%",
        type=_limit,
        default=MAX_DELETES,
        help="Emit nothing if there are more deletes: a number, or a share of the live objects compared, of all and of each"
        " type. Default: 20%%.",
    )
    add(
        "--max-changes",
        metavar="N|P%",
        type=_limit,
        default=MAX_CHANGES,
        help="Emit nothing if there are more changes: a number of inserts and updates, or a share of the live objects"
        " compared, of all and of each type, that would be updated. Default: 60%%.",
    )
    add(
        "--max-rate",
        metavar="N",
        type=_rate,
        help="Emit at most so many corrections per second. Default: no limit.",
    )
    add("--skip-invalid", action="store_true", help="Leave invalid rows out instead of stopping.")
    add(
        "--force",
        action="store_true",
        help="Go on with an empty dump, or rows of the future. Nothing is deleted then.",
    )
    add("--dry-run", action="store_true", help="Do all but emit.")
    add(
        "--report",
        metavar="PATH",
        type=_text,
        help="Write each correction into a new folder of this name: JSON lines if it ends in .jsonl, else Parquet.",
    )
    add(
        "--capped-collection-size",
        metavar="SIZE",
        type=_size,
        help="How large the log may grow, if it is created now: bytes, or 10MB, 1G. Default: 256MB.",
    )
    add(
        "--log-collection",
        choices=("capped", "plain"),
        help="How MongoDB keeps the log, if it is created now. Default: capped.",
    )
    add(
        "--master",
        metavar="URL",
        type=_text,
        help="Spark master. Default: spark-submit's, else local[*].",
    )
    add("--debug", action="store_true", help="Show Spark's messages, and where an error came from.")
    add("--version", action="version", version=f"oplog-sync {oplogd.__version__}")
    return parser


def _text(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def _mongo_url(text: str) -> str:
    # The value may hold a password: no message may repeat it.
    if not text.startswith(("mongodb://", "mongodb+srv://")):
        raise argparse.ArgumentTypeError("the URL must begin with mongodb:// or mongodb+srv://")
    return text


def _types(text: str) -> list[str]:
    types = [name.strip().lower() for name in text.split(",")]
    if "" in types:
        raise argparse.ArgumentTypeError(f"{text!r} holds an empty type")
    return types


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError("must be NAME=VALUE")
    return name, value


def _limit(text: str) -> Limit:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)%|(\d+)", text, re.ASCII)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a number such as 500 nor a percentage such as 20%"
        )
    return Limit(float(match[1] or match[2]), is_percentage=match[1] is not None)


def _rate(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) << _UNITS[match[2].lower()] if match else 0
    if size < 4096:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size of at least 4096 bytes, such as 10485760 or 10MB"
        )
    return size
