"""The subcommands of ``oplogctl lease`` and ``oplogctl namespace``."""

import click

from oplogc.ctl.options.flags import on_topics
from oplogc.ctl.output import show
from oplogc.topics import Topics


@click.group(no_args_is_help=True)
def lease() -> None:
    """Look at leases, by which one of several processes leads."""


@lease.command("list")
@on_topics(writes=False)
def list_leases(topics: Topics, as_json: bool) -> None:
    """List all leases that were ever held, with holder, term and time left."""
    show(topics.leases(), as_json)


@click.group(no_args_is_help=True)
def namespace() -> None:
    """Look at the namespaces of topics."""


@namespace.command("list")
@on_topics(writes=False)
def list_namespaces(topics: Topics, as_json: bool) -> None:
    """List the namespaces that have topics, with the number of their topics."""
    show(topics.namespaces(), as_json)


# The same under its earlier name.
namespaces = click.Command(
    "namespaces", callback=list_namespaces.callback, params=list_namespaces.params, hidden=True
)
