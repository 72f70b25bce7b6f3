"""The options of Spark's readers: those that the job sets itself, and those that would drop rows."""

from oplog_sync.errors import OptionError
from oplog_sync.settings import JobSettings

DEFAULTS = {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"}
"""Options that the user may set: the calendar of old dates in Parquet files that Spark has not written."""

READING = {
    # The platform's settings may say otherwise, and then half a dump would count as a whole one.
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "__globPaths__": "false",  # names are found already, and may hold [ or {
}
"""Options of every reader of files."""

RAW_FILES = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
"""Options for names that hold a colon, of which Hadoop cannot make the name of a checksum."""

_DROPS_ROWS = "it would leave out rows that then count as deleted"
_REFUSED = {
    "ignorecorruptfiles": _DROPS_ROWS,
    "ignoremissingfiles": _DROPS_ROWS,
    "modifiedafter": _DROPS_ROWS,
    "modifiedbefore": _DROPS_ROWS,
    "pathglobfilter": f"{_DROPS_ROWS}; name the files by a pattern",
    "mode": "the job counts invalid rows itself; --skip-invalid leaves them out",
    "columnnameofcorruptrecord": "the job counts invalid rows itself; --skip-invalid leaves them out",
    "recursivefilelookup": "the job reads nested folders anyway",
    "mergeschema": "the job reads the columns of all files anyway",
    "enforceschema": "the job reads columns by their names",
    "columnpruning": "the job sets it itself",
    "basepath": "the job sets it itself",
    "__globpaths__": "the job sets it itself",
}
_JSON_LINES = {
    "multiline": "a JSON dump holds one object a line",
    "wholetext": "a JSON dump holds one object a line",
    "encoding": "a JSON dump is in UTF-8",
    "charset": "a JSON dump is in UTF-8",
}


def check_options(settings: JobSettings) -> None:
    """Raise OptionError for an option that would drop rows, or that the job sets itself."""
    refused = _REFUSED | (_JSON_LINES if settings.format == "json" else {})
    for name, _ in settings.options:
        if reason := refused.get(name.lower()):
            raise OptionError(f"--option {name}: {reason}")


def has(settings: JobSettings, *names: str) -> bool:
    return any(name.lower() in names for name, _ in settings.options)
