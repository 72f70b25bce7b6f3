"""The subcommands of ``oplogctl pointer``."""

import click

from oplogc.ctl.options.flags import on_topics, option, topic_text
from oplogc.ctl.output import say, show
from oplogc.terminal.options import Converted
from oplogc.topics import Topics
from oplogc.topics.calls.pointers import MAX_TOPICS
from oplogc.topics.messages.snapshot import pointer_of


@click.group(no_args_is_help=True)
def pointer() -> None:
    """Report the end of foreign transactions, and list those that are open.

    POINTER is the write pointer of a transaction of another transaction manager. Readers without
    its snapshot wait for the report, or for its time-out.
    """


@pointer.command("list")
@on_topics(writes=False)
def list_(topics: Topics, as_json: bool) -> None:
    """List the open pointers of all topics, the oldest first.

    HOLDS tells whether readers wait for it. `oplogctl topic pointers` lists those of one topic.
    """
    show(topics.pointers.list_all(), as_json)


def _add_report(decision: str, state: str, end: str) -> None:
    """Add the subcommand that reports a decision."""

    @pointer.command(decision, help=f"Report that the transaction of a pointer {end}.")
    @click.argument("pointer", metavar="POINTER", type=Converted("POINTER", pointer_of))
    @option(
        "--topic names TOPIC",
        topic_text,
        f"A topic with messages under it. Can be repeated, {MAX_TOPICS:,} times at most.",
        multiple=True,
        required=True,
    )
    @on_topics(writes=True)
    def report(topics: Topics, pointer: int, names: tuple[str, ...], as_json: bool) -> None:
        getattr(topics.pointers, decision)(pointer, names)
        unique = list(dict.fromkeys(names))
        shown = {"pointer": str(pointer), "state": state, "topics": unique}
        say(shown, f"pointer {pointer} is {state} in {', '.join(unique)}", as_json)


_add_report("commit", "committed", "has committed")
_add_report("abort", "aborted", "was aborted")
