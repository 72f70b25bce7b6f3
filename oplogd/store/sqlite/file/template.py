"""SQL for the oplog and the topics: both number their entries without holes."""

from collections.abc import Sequence

# Approximate bound of one read, however long the entries are.
READ_CHARACTERS = 1_000_000


def steps(table: str, number: str, columns: Sequence[str], first: str) -> str:
    """Return the SQL of ``step``: at most ``:limit`` entries from number ``first`` on.

    A read steps from entry to entry and stops at its bound, so it does not touch later entries.
    """
    names = ", ".join((number, *columns))
    following = ", ".join(f"{table}.{name}" for name in (number, *columns))
    return f"""step ({names}, data, size) AS (
        SELECT {names}, data, length(data) FROM {table} WHERE {number} = {first}
        UNION ALL
        SELECT {following}, {table}.data, size + length({table}.data)
        FROM step JOIN {table} ON {table}.{number} = step.{number} + 1
        WHERE size < {READ_CHARACTERS}
        LIMIT :limit
    )"""


def search(name: str, table: str, number: str, time: str, *, start: str) -> str:
    """Return the SQL of a binary search: ``max(low)`` of ``name`` is the number found.

    It is the last number whose time is less than ``wanted``. ``start`` selects low, high and
    wanted: low is known to be less, or is before the first entry; no number after high is looked
    at. ``time`` ascends with ``number``.
    """
    middle = "(low + high + 1) / 2"
    return f"""{name} (low, high, wanted) AS (
        {start}
        UNION ALL
        SELECT iif({table}.{time} < wanted, {middle}, low),
        iif({table}.{time} < wanted, high, {middle} - 1), wanted
        FROM {name} JOIN {table} ON {table}.{number} = {middle} WHERE low < high
    )"""
