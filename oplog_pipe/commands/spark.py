"""``oplog-pipe spark``: a pipe whose sinks are streaming queries of Spark."""

import dataclasses
import re

import click

from oplog_kit import logs
from oplog_kit.command.options import listen_option, log_options
from oplog_kit.command.value import Value
from oplog_kit.extras import how_to_install
from oplog_pipe.commands.options import settings_option
from oplog_pipe.commands.running import run_process
from oplog_pipe.commands.validate import make_all
from oplog_pipe.errors import PipeError
from oplog_pipe.model.settings import PipeSettings

_NUMBER = "[1-9][0-9]{0,4}"
_MASTER = re.compile(
    rf"local(\[({_NUMBER}|\*)(,{_NUMBER})?\])?|local-cluster\[{_NUMBER},{_NUMBER},{_NUMBER}\]|yarn"
    r"|spark://[^\s/]+:[0-9]{1,5}|k8s://\S+"
)
# Operations of a batch. The tasks of a batch hold some thousands of them.
_BATCH = 100_000
_LARGEST_BATCH = 1 << 24
# Seconds that hanging queries may outlive the pipe.
_THREADS = 10.0


def _folder(text: str) -> str:
    if not text:
        raise ValueError("is empty")
    return text


def _master(text: str) -> str:
    if not _MASTER.fullmatch(text):
        raise ValueError(f"{text!r} is no master such as local[4] or spark://host:7077")
    return text


@click.command()
@settings_option()
@click.option(
    "--checkpoint", type=Value("PATH", _folder), required=True,
    help="Folder of the positions, a folder in it per sink. On a cluster in a file system of all"
    " machines, such as s3a:// or hdfs://.",
)  # fmt: skip
@click.option(
    "--master",
    type=Value("URL", _master),
    help="Master of Spark. Default: that of spark-submit, else all cores of this machine.",
)
@click.option(
    "--tasks", type=click.IntRange(1, 10_000), metavar="N",
    help="Tasks that write a batch at once. Default: the cores Spark has.",
)  # fmt: skip
@click.option(
    "--max-operations", type=click.IntRange(1, _LARGEST_BATCH), metavar="N", default=_BATCH,
    show_default=True,
    help=f"Operations of a batch from each source, 1 to {_LARGEST_BATCH:,}. A copy is one batch.",
)  # fmt: skip
@click.option("--available-now", is_flag=True, help="End when all that there is now is written.")
@listen_option(
    "--listen", "Serve /status, /live and /metrics here, instead of at listen of the file."
)
@log_options()
def spark(
    settings: PipeSettings,
    checkpoint: str,
    master: str | None,
    tasks: int | None,
    max_operations: int,
    available_now: bool,
    listen: str | None,
    log_format: logs.Format,
    debug: bool,
) -> int:
    """Run the pipe on Spark, with a streaming query per sink.

    For more than one machine can carry. Runs until SIGTERM or Ctrl-C. Positions are in the
    checkpoint; `dir` and the settings of the commit log have no effect. A sink that fails ends
    alone, and the others go on. Exit code: 0 stopped by a signal, 1 a source refuses, or Spark
    fails, 2 a wrong setting, 4 a sink or a transform did not take messages, 5 messages of a topic
    are gone.
    """
    from oplog_pipe.spark import rules

    logs.configure(log_format, debug)
    rules.check(settings, make_all(settings, on_spark=True))
    if listen is not None:
        settings = dataclasses.replace(settings, listen=listen)
    try:
        from oplog_pipe.spark.job import SparkPipe
        from oplog_pipe.spark.query import QueryOptions, SinkQuery
        from oplog_pipe.spark.session import session
    except ImportError as error:
        raise PipeError(f"{error.name} is missing; {how_to_install('pipe,sync')}") from None

    with session(settings, master, debug=debug) as made:
        parallel = tasks or made.sparkContext.defaultParallelism
        options = QueryOptions(checkpoint, parallel, max_operations, available_now, log_format)
        pipe = SparkPipe(
            settings,
            [SinkQuery(made, settings, number, options) for number in range(len(settings.sinks))],
        )
        return run_process(
            pipe,
            settings.listen,
            log_format,
            "stopped by a second signal: batches will be written again",
            lambda ending: ending.within(_THREADS) if pipe.hangs else None,
        )
