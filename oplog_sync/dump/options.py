"""Options of Spark's readers: set by the job, or refused because they would drop rows."""

from oplog_sync.errors import OptionError
from oplog_sync.settings import JobSettings

# Defaults, which the user may override: the calendar of old dates in Parquet files not from Spark.
DEFAULTS = {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"}

# Options of every reader of files.
READING = {
    # The platform may have other defaults. Half a dump would then count as a whole one.
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "__globPaths__": "false",  # the paths are already resolved and may contain [ or {
}

# Options for names with a colon: Hadoop cannot name a checksum file for them.
RAW_FILES = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}

_DROPS_ROWS = "it would drop rows, which then count as deleted"
_COUNTS_ROWS = "the job counts invalid rows itself; --skip-invalid leaves them out"
_REFUSED = {
    "ignorecorruptfiles": _DROPS_ROWS,
    "ignoremissingfiles": _DROPS_ROWS,
    "modifiedafter": _DROPS_ROWS,
    "modifiedbefore": _DROPS_ROWS,
    "pathglobfilter": f"{_DROPS_ROWS}; select the files with a pattern",
    "mode": _COUNTS_ROWS,
    "columnnameofcorruptrecord": _COUNTS_ROWS,
    "recursivefilelookup": "the job reads nested folders anyway",
    "mergeschema": "the job reads the columns of all files anyway",
    "enforceschema": "the job reads columns by their names",
    "columnpruning": "the job sets it itself",
    "basepath": "the job sets it itself",
    "__globpaths__": "the job sets it itself",
}
_JSON_LINES = {
    "multiline": "a JSON dump has one object per line",
    "wholetext": "a JSON dump has one object per line",
    "encoding": "a JSON dump is in UTF-8",
    "charset": "a JSON dump is in UTF-8",
}


def check_options(settings: JobSettings) -> None:
    """Raise OptionError if an option would drop rows, or if the job sets it itself."""
    refused = _REFUSED | (_JSON_LINES if settings.format == "json" else {})
    for name, _ in settings.options:
        if reason := refused.get(name.lower()):
            raise OptionError(f"--option {name}: {reason}")
