"""The settings of the job: a frozen value and its table of flags."""

import os
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Any, Literal

import click

import oplogd
from oplog_kit.command import convert
from oplog_kit.command.convert import Secret
from oplog_kit.command.flags import secret, setting
from oplog_kit.command.given import Given
from oplog_kit.command.settings import SettingsCommand
from oplog_sync.backend.base import NewLog
from oplog_sync.guard import Limit
from oplogd.model.operation import normalise_timestamp

_ABOUT = (
    "Compare a dump of the source with the objects that an oplog knows, and emit corrections to the"
    " oplog. DUMP is a file, folder, pattern or Hadoop path, also .gz or .zst; - is standard input."
)
_NOTES = """\
Each value comes from its flag, else from its variable, else it is the default. \
An empty variable is not set. An unknown variable that begins with OPLOG_SYNC_ is refused.

Exit codes: 0 done, 1 failed, 2 a bad setting, 3 more deletes than allowed, 4 invalid rows, \
5 empty dump, 6 more changes than allowed, 7 rows dated in the future, 8 a dump older than \
forgotten deletions, 129, 130, 143 stopped by a signal. With 3 to 8 nothing was emitted."""


def _setting(*arguments: Any, **options: Any) -> Any:
    return setting(*arguments, program="oplog-sync", **options)


def _secret(*arguments: Any) -> Any:
    # An empty URL, such as "$URL" without a value, must not choose the default store.
    return secret(*arguments, program="oplog-sync", empty_is_unset=False)


def _text(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


def _types(text: str) -> frozenset[str]:
    types = frozenset(name.strip().lower() for name in text.split(","))
    if "" in types:
        raise ValueError(f"{text!r} holds an empty type")
    return types


def _moment(text: str) -> str:
    """Return a version, or a time in the stored form."""
    return text if text.isdecimal() and text.isascii() else normalise_timestamp(text)


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError("must be NAME=VALUE")
    return name, value


def _limit(text: str) -> Limit:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)%|(\d+)", text, re.ASCII)
    if match is None:
        raise ValueError(f"{text!r} is neither a number such as 500 nor a percentage such as 20%")
    return Limit(float(match[1] or match[2]), is_percentage=match[1] is not None)


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """The settings of one run. `arguments` are the dumps."""

    arguments: tuple[str, ...] = ()
    store_path: str = _setting(
        "Store", "--store", "PATH", "oplog.db", _text,
        "SQLite file of the oplog. Excludes --mongo-url.",
    )  # fmt: skip
    mongo_url: Secret | None = _secret(
        "Store", "--mongo-url", "URL", convert.mongo_url,
        "The oplog is in MongoDB, at mongodb://... or mongodb+srv://... Other users see a "
        "URL on the command line: prefer the variable or --mongo-url-file.",
    )  # fmt: skip
    create: bool = _setting(
        "Store", "--create", None, "false", convert.switch,
        "Create the store if it is missing. Without this flag a missing store is an error.",
    )  # fmt: skip
    capped_collection_size: int | None = _setting(
        "Store", "--capped-collection-size", "SIZE", None, convert.size(4096),
        "Maximum size of the log, if this run creates it. Not set: 256MB.",
    )  # fmt: skip
    log_collection: Literal["capped", "plain"] = _setting(
        "Store", "--log-collection", "capped|plain", "capped", convert.log_collection,
        "How MongoDB keeps the log, if this run creates it.",
    )  # fmt: skip
    format: Literal["json", "parquet", "orc", "csv", "jdbc"] = _setting(
        "Dump", "--format", "json|parquet|orc|csv|jdbc", "json",
        convert.OneOf("json", "parquet", "orc", "csv", "jdbc"),
        "Format of the dump. json: one object per line.",
    )  # fmt: skip
    table: str | None = _setting(
        "Dump", "--table", "NAME", None, _text,
        "The dump is this table of Spark's catalog. Excludes DUMP, --format and --option.",
    )  # fmt: skip
    as_of: str | None = _setting(
        "Dump", "--as-of", "TIME|VERSION", None, _moment,
        "Read the table as it was at this time, or in this version.",
    )  # fmt: skip
    options: tuple[tuple[str, str], ...] = _setting(
        "Dump", "--option", "NAME=VALUE", None, _option,
        "Option for Spark's reader. Can be repeated. The variable holds one option per line.",
        repeats=True,
    )  # fmt: skip
    only_types: frozenset[str] | None = _setting(
        "Dump", "--types", "A,B", None, _types,
        "Compare only objects of these types. Not set: all types.",
    )  # fmt: skip
    skip_invalid: bool = _setting(
        "Dump", "--skip-invalid", None, "false", convert.switch,
        "Leave invalid rows out instead of stopping.",
    )  # fmt: skip
    max_deletes: Limit = _setting(
        "Safety", "--max-deletes", "N|P%", "20%", _limit,
        "Emit nothing if there are more deletes than this number, or than this share of the live "
        "objects compared, in total or of one type.",
    )  # fmt: skip
    max_changes: Limit = _setting(
        "Safety", "--max-changes", "N|P%", "60%", _limit,
        "Emit nothing if there are more inserts and updates than this number, or more updates "
        "than this share of the live objects compared, in total or of one type.",
    )  # fmt: skip
    force: bool = _setting(
        "Safety", "--force", None, "false", convert.switch,
        "Continue with an empty dump, or with rows dated in the future. Then nothing is deleted.",
    )  # fmt: skip
    allow_old_dump: bool = _setting(
        "Safety", "--allow-old-dump", None, "false", convert.switch,
        "Insert objects although the store has forgotten deletions since the dump was made.",
    )  # fmt: skip
    dry_run: bool = _setting(
        "Safety", "--dry-run", None, "false", convert.switch,
        "Compare and report, but emit nothing.",
    )  # fmt: skip
    max_rate: int | None = _setting(
        "Output", "--max-rate", "N", None, convert.count(1),
        "Emit at most N corrections per second. Not set: no limit.",
    )  # fmt: skip
    report: str | None = _setting(
        "Output", "--report", "PATH", None, _text,
        "Write each correction into a new folder of this name: JSON lines if it ends in "
        ".jsonl, .json or .ndjson, else Parquet.",
    )  # fmt: skip
    master: str | None = _setting(
        "Process", "--master", "URL", None, _text,
        "Spark master. Not set: spark-submit's, else local[*].",
    )  # fmt: skip
    debug: bool = _setting(
        "Process", "--debug", None, "false", convert.switch,
        "Show Spark's messages and the origin of an error.",
    )  # fmt: skip

    @property
    def store(self) -> str:
        """Return the path of the SQLite file or the URL of MongoDB. It may hold a password."""
        return self.store_path if self.mongo_url is None else self.mongo_url.reveal()

    @property
    def types(self) -> frozenset[str]:
        """Return the types to compare. Empty: all types."""
        return self.only_types or frozenset()

    @property
    def new_log(self) -> NewLog:
        return NewLog(self.capped_collection_size, self.log_collection)


def command() -> SettingsCommand[JobSettings]:
    return SettingsCommand(
        "oplog-sync",
        JobSettings,
        _check,
        version=oplogd.__version__,
        about=_ABOUT,
        notes=_NOTES,
        argument="DUMP",
    )


_MONGO_URL = ("--mongo-url", "--mongo-url-file")


def _check(given: Given) -> None:
    dumps, format_ = given.arguments, given.values.get("format", "json")
    given.refuse_together(["--table"], ["--format", "--option"])
    given.require("--as-of", "--table")
    if given.values.get("table") is not None:
        if dumps:
            raise click.UsageError("--table: the dump is this table; name no other DUMP")
    elif not dumps and format_ != "jdbc":
        raise click.UsageError("name the dump: files, folders or patterns, or - for standard input")
    if dumps and format_ == "jdbc":
        raise click.UsageError(
            "--format jdbc: the dump is named by --option url=... and --option dbtable=..., not by"
            " a path"
        )
    if "-" in dumps and (len(dumps) > 1 or format_ != "json"):
        raise click.UsageError("-: standard input is read as JSON lines and excludes other dumps")
    given.refuse_together(["--store"], _MONGO_URL)
    given.require("--log-collection", *_MONGO_URL)
    report = given.values.get("report")
    if report is not None and any(_lies_in(report, dump) for dump in dumps):
        fault = "it lies in the dump, and the next run would read it as rows; name a path outside"
        raise click.UsageError(f"{given.sources['--report']}: {fault}")


def _lies_in(report: str, dump: str) -> bool:
    """Return whether a folder or pattern of the dump holds the report's path."""
    path, given = (
        PurePath(text if ":/" in text else os.path.abspath(text)) for text in (report, dump)
    )
    folders = (path, *path.parents)
    return given in folders or any(fnmatchcase(str(folder), str(given)) for folder in folders)
