"""What errors of PostgreSQL and PgBouncer mean. No I/O."""

import re

import psycopg

from oplog_pipe.errors import FencedError, SinkError, TargetError
from oplog_pipe.model.reasons import of_sql

# Transient classes and codes of SQLSTATE: connection, conflict with another transaction, resources,
# locks and time-outs, operator, system; a read-only server, such as a standby until it takes over;
# an idle or overlong transaction; statements of another client of PgBouncer.
_PASSING = ("08", "40", "53", "55", "57", "58", "25006", "25P03", "25P04", "26000", "42P05")
# Whatever the message: wrong user, missing database, schema, table, column or right.
_OF_TARGET = ("28", "3D", "3F", "42")
MOVED_FENCE = "the fence of oplog-pipe has moved"
"""What a guarded transaction that comes too late tries to read as a number."""

# libpq gives no SQLSTATE when it connects. With messages in another language, the sink tries again.
_REFUSED = re.compile(
    r"password authentication failed|SASL authentication failed|no password supplied"
    r'|no pg_hba\.conf entry|pg_hba\.conf rejects|(role|user|database) ".*" does not exist'
    r"|no such (user|database)|is not permitted to log in|root certificate file .* does not exist"
)


def failure(error: psycopg.Error | UnicodeError, *, creates: bool) -> SinkError:
    """Return the error of a sink. ``creates``: the sink creates missing tables."""
    if isinstance(error, psycopg.errors.PipelineAborted):
        error = _first(error)
    code = getattr(error, "sqlstate", None)
    if isinstance(error, psycopg.errors.InvalidTextRepresentation) and MOVED_FENCE in str(error):
        return FencedError("PostgreSQL: a later writer of these rows has begun")
    lost = code is None and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    # Another process has dropped a table, or creates it at the same time.
    again = creates and (
        isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.DuplicateTable)
        or (
            isinstance(error, psycopg.errors.UniqueViolation)
            and error.diag.schema_name == "pg_catalog"
        )
    )
    text = f"PostgreSQL: {_reason(error)}"
    transient = lost or again or (code or "").startswith(_PASSING)
    if not transient and (code or "").startswith(_OF_TARGET):
        return TargetError(text)
    return SinkError(text, transient=transient)


def refusal(error: psycopg.Error) -> SinkError:
    """Return the error of a sink for a failed connection."""
    if error.sqlstate is None and _REFUSED.search(str(error)):
        return TargetError(f"PostgreSQL: {_reason(error)}; look at url")
    return failure(error, creates=False)


def _first(error: BaseException) -> psycopg.Error:
    """Return the reason for an aborted pipeline."""
    found = error
    while isinstance(found, psycopg.errors.PipelineAborted) and found.__context__ is not None:
        found = found.__context__
    return found if isinstance(found, psycopg.Error) else psycopg.OperationalError(str(error))


def _reason(error: psycopg.Error | UnicodeError) -> str:
    if isinstance(error, UnicodeError):
        return f"a text cannot be encoded: {getattr(error, 'reason', type(error).__name__)}"
    diag = error.diag
    if error.sqlstate is None or not diag.message_primary:  # of the connection
        return " ".join(str(error).split()) or type(error).__name__
    names = {
        "context": diag.context,
        "table": diag.table_name,
        "column": diag.column_name,
        "constraint": diag.constraint_name,
        "type": diag.datatype_name,
    }
    return of_sql(type(error).__name__, error.sqlstate, diag.message_primary, names)
