"""``oplog-pipe validate``: checks the settings, and all that they name."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterator

import click

from oplog_kit.command.options import PATIENCE, tell
from oplog_kit.tls import tls_context
from oplog_kit.wording import counted
from oplog_pipe.commands.options import settings_option
from oplog_pipe.config import shown
from oplog_pipe.deliver.factory import build
from oplog_pipe.errors import ConfigError, PipeError, SinkError
from oplog_pipe.folder.remarks import remarks
from oplog_pipe.follow.streams import is_oplog, oplog_endpoints, topic_endpoints
from oplog_pipe.model.exits import EXIT_OK, PROGRAM
from oplog_pipe.model.imports import load as load_module
from oplog_pipe.model.reasons import of_code
from oplog_pipe.model.settings import FunctionStep, PipeSettings, SinkSettings, SourceSettings
from oplog_pipe.sinks.base import Inspected, Probed, Sink, Upgrading
from oplog_pipe.sinks.format import FormatOptions
from oplog_pipe.spark import rules
from oplogc.follow.stream import named_store, open_stream
from oplogc.http.address import Endpoint
from oplogc.http.address import shown as address_shown
from oplogc.http.answers import printable
from oplogc.http.client import http_client
from oplogc.wire.errors import OplogError, RefusedError


@click.command()
@settings_option()
@click.option("--offline", is_flag=True, help="Ask neither sinks nor agents.")
@click.option("--show", is_flag=True, help="Print the settings with all defaults, as YAML.")
@click.option("--spark", "for_spark", is_flag=True, help="Also refuse what spark does not have.")
def validate(settings: PipeSettings, offline: bool, show: bool, for_spark: bool) -> int:
    """Check the settings, and all that they name.

    Imports the modules of transforms and sinks. Then opens and closes each sink, which may create
    its table or index, and asks each agent for the log, with --spark not those of a source with a
    store. A file is not opened: a pipe may be writing to it. Exit code: 0 all is well, 1 a sink or
    an agent has a problem, 2 the settings have mistakes.
    """
    sinks = make_all(settings, on_spark=for_spark)
    if for_spark:
        rules.check(settings, sinks)
    if show:
        print(shown(settings).rstrip())
    for sentence in remarks(settings):
        print(f"# {printable(sentence)}")
    if not offline:
        return asyncio.run(tell(PROGRAM, _answers(settings, sinks, on_spark=for_spark)))
    if not show:
        counts = counted(len(settings.sources), "source"), counted(len(settings.sinks), "sink")
        print(f"the settings are right: {', '.join(counts)}")
    return EXIT_OK


def make_all(settings: PipeSettings, *, on_spark: bool) -> list[Sink | None]:
    """Import all modules and make all sinks. Raises ConfigError, which has a line per problem.

    None: a table of Spark, with ``on_spark`` only.
    """
    sinks: list[Sink | None] = []
    problems = []
    for each in settings.sinks:
        for place, step in enumerate(each.transforms):
            if isinstance(step, FunctionStep):
                try:
                    if not callable(load_module(step.function, settings.root)):
                        raise ConfigError(f"{step.function}: is no function")
                except ConfigError as error:
                    problems.append(f"sink {each.name}: transforms[{place}]: {error}")
        try:
            if on_spark:
                each = each.without_select()
            is_table = on_spark and isinstance(each.options, FormatOptions)
            sinks.append(None if is_table else build(each, settings.root))
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))
    return sinks


async def _answers(
    settings: PipeSettings, sinks: list[Sink | None], *, on_spark: bool
) -> AsyncIterator[tuple[str, str]]:
    """Yield the subject of each answer and a sentence. A problem has no subject."""
    for own, sink in zip(settings.sinks, sinks, strict=True):
        if sink is None:
            yield f"sink {own.name}", f"Spark writes {own.type}"
            continue
        try:
            yield f"sink {own.name}", await asyncio.to_thread(_opened, own, sink)
        except PipeError as error:
            yield "", f"sink {own.name}: {error}"
    for source in settings.sources:
        if on_spark and source.store is not None:
            yield f"source {source.name}", "Spark reads the store, not its agents"
            continue
        stores: dict[str, Endpoint] = {}
        for endpoint in _endpoints(source):
            try:
                store = await _asked(source, endpoint)
                if store is not None:
                    stores.setdefault(store, endpoint)
                yield f"source {source.name}", f"{address_shown(endpoint.url)} serves {source.log}"
            except OplogError as error:
                is_wrong = isinstance(error, RefusedError) and error.status == 401
                hint = "; look at password" if is_wrong else ""
                said = f"{address_shown(endpoint.url)}: {error}{hint}"
                yield "", f"source {source.name}: {said}"
        if len(stores) > 1:
            named = " and ".join(address_shown(each.url) for each in stores.values())
            yield "", f"source {source.name}: {named} have different stores; look at agents"


def _opened(settings: SinkSettings, sink: Sink) -> str:
    """Open and close a sink. Raises PipeError."""
    if isinstance(sink, Probed):
        return sink.probe()
    try:
        try:
            sink.open()
            if isinstance(sink, Upgrading) and (missing := sink.missing()):
                raise SinkError(f"the target needs a change; run: {'; '.join(missing)}")
            remarks = []
            if isinstance(sink, Inspected):
                if faults := sink.faults():
                    raise SinkError("; ".join(faults))
                remarks = sink.remarks()
        finally:
            sink.close()
    except PipeError:
        raise
    except Exception as error:  # of a class of the user's own
        raise SinkError(of_code(error)) from error
    return "; ".join([f"{settings.type} can be opened", *remarks])


def _endpoints(source: SourceSettings) -> Iterator[Endpoint]:
    if is_oplog(source.log):
        yield from oplog_endpoints(source.agents, source.password)
    else:
        yield from topic_endpoints(source.agents, source.password, source.log, source.isolation)


async def _asked(source: SourceSettings, endpoint: Endpoint) -> str | None:
    """Open the stream of one agent, and close it. Return the identity of its store.

    None: it names none. Raises OplogError.
    """
    async with http_client(None, verify=tls_context(**dataclasses.asdict(source.tls))) as client:
        response = await open_stream(client, endpoint, "", PATIENCE, RefusedError)
        await response.aclose()
        return named_store(response)
