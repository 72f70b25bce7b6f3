"""The command ``oplogctl token``."""

import json
import sys
import time
from collections.abc import Callable
from itertools import chain
from typing import Any

import click

from oplogc.ctl.options import values
from oplogc.ctl.options.connection import Failed
from oplogc.ctl.options.flags import option
from oplogc.ctl.options.inputs import stdin_text
from oplogc.ctl.token.content import CLAIM, MAX_SUBJECT, MAX_TOKEN_BYTES, content_of, is_subject
from oplogc.ctl.token.keys import Key, is_signed, key_in_file, sign, signing_key
from oplogc.ctl.token.lines import token_lines, token_members
from oplogc.ctl.token.rights import (
    MEMBERS,
    RightError,
    check_counts,
    lease_pattern,
    parent_key,
    topic_pattern,
    type_name,
)
from oplogc.terminal.values import count

_DEFAULT_SECONDS = 900
# Three thousand years: agents refuse later times, and set no limit themselves.
_MAX_SECONDS = 10**11
_MAX_STDIN = 64 * 1024


@click.group(no_args_is_help=True)
def token() -> None:
    """Create and show tokens (JWT) for agents with --token-key."""


def _each(convert: Callable[[str], str]) -> Callable[[str], tuple[str, ...]]:
    """Return a conversion of values separated by commas."""
    return lambda text: tuple(convert(each) for each in values.text(text).split(","))


def _subject(text: str) -> str:
    if not is_subject(values.text(text)):
        raise ValueError(f"is not 1 to {MAX_SUBJECT} printable characters")
    return text


def _name(text: str) -> str:
    if not values.text(text):
        raise ValueError("must not be empty")
    return text


def _seconds(text: str) -> int:
    if count(text) > _MAX_SECONDS:
        raise ValueError(f"{text!r} is more than {_MAX_SECONDS:,}")
    return int(text)


_TOPICS = "PATTERN[,PATTERN...]"
# Usage, conversion and help of the flags that name the right.
_RIGHT: tuple[tuple[str, Callable[[str], Any], str], ...] = (
    (
        f"--read {_TOPICS}", _each(topic_pattern),
        "Topics to read: NAMESPACE/TOPIC, NAMESPACE/* or *. The operations are system/oplog. Can be"
        " repeated, as all flags of the right.",
    ),
    (f"--write {_TOPICS}", _each(topic_pattern), "Topics to write to."),
    (f"--manage {_TOPICS}", _each(topic_pattern), "Topics to create, change and delete."),
    (
        "--leases NAME[,NAME...]", _each(lease_pattern),
        "Leases to poll, show and release: NAME, PREFIX* or *.",
    ),
    (
        "--types TYPE[,TYPE...]", _each(type_name),
        "Read and write only operations on objects of these types.",
    ),
    (
        "--parents PARENT[,PARENT...]", values.text,
        "Read only operations with one of these parents. When repeated, each value is one parent"
        " and may hold a comma.",
    ),
)  # fmt: skip
# A key or token on the command line by mistake is not repeated in an error.
_SECRETIVE = {"allow_extra_args": True}


def _names_a_right(command: Callable[..., None]) -> Callable[..., None]:
    for usage, convert, text in reversed(_RIGHT):
        option(usage, convert, text, multiple=True)(command)
    return command


@token.command(context_settings=_SECRETIVE)
@option(
    "--key FILE",
    signing_key,
    "File with the key: a secret of at least 32 bytes (HS256; a newline at its end is not part of"
    " it), or a private key in PEM of RSA (RS256), P-256 (ES256) or Ed25519 (EdDSA).",
    required=True,
)
@_names_a_right
@option("--sub NAME", _subject, "Name of the client, which owns its transactions.")
@option("--audience NAME", _name, "Audience: agents with another --token-audience refuse it.")
@option("--seconds N", _seconds, "How long the token is valid.", default=str(_DEFAULT_SECONDS))
@option("--kid ID", _name, "Id of the key, if it has one in the JWKS of the agents.")
@click.pass_context
def create(
    ctx: click.Context,
    /,
    key: Key,
    sub: str | None,
    audience: str | None,
    seconds: int,
    kid: str | None,
    **named: tuple[Any, ...],
) -> None:
    """Sign a token with a key that you have, and print it.

    It grants only what is named, and at least one of the flags from --read to --parents must name
    something. --types or --parents alone grant reading the operations that they name.

    An agent with --token-key takes the token until it expires. It cannot be revoked before, except
    with its key, so keep its time short. An agent sets no limit to it.
    """
    _refuse_arguments(ctx)
    right = _right(named)
    claims: dict[str, Any] = {"exp": int(time.time()) + seconds, CLAIM: right}
    if sub is not None:
        claims["sub"] = sub
    if audience is not None:
        claims["aud"] = audience
    made = sign(key, claims, kid)
    if len(made) > MAX_TOKEN_BYTES:
        sizes = {**right, "sub": sub, "audience": audience, "kid": kid}
        largest = max(sizes, key=lambda name: len(json.dumps(sizes[name])))
        raise click.UsageError(
            f"--{largest}: the token has {len(made):,} bytes, at most {MAX_TOKEN_BYTES:,} are"
            " possible"
        )
    print(made)


def _right(named: dict[str, tuple[Any, ...]]) -> dict[str, list[str]]:
    """Return the right that the flags name. Raises click.UsageError."""
    given = {name: list(chain(*named[name])) for name in MEMBERS if name != "parents"}
    parents = named["parents"]
    given["parents"] = parents[0].split(",") if len(parents) == 1 else list(parents)
    right = {name: found for name, found in given.items() if found}
    if not right:
        flags = ", ".join(f"--{name}" for name in MEMBERS)
        raise click.UsageError(f"give one or more of {flags}: nothing else is granted")
    try:
        check_counts(right)
        for each in right.get("parents", ()):
            try:
                parent_key(each)
            except ValueError as error:
                raise RightError(["parents"], str(error)) from None
    except RightError as error:
        at_fault = ", ".join(f"--{name}" for name in error.members)
        raise click.UsageError(f"{at_fault}: {error}") from None
    return right


@token.command(context_settings=_SECRETIVE)
@click.argument("token", metavar="[TOKEN|-]", required=False, default="-")
@option(
    "--key FILE",
    key_in_file,
    "Verify the signature with the key in this file: a secret, or a private or public key in PEM.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def show(ctx: click.Context, token: str, key: Key | None, as_json: bool) -> None:
    """Print what a token grants, to whom and until when.

    The token is read from stdin, so that it stays out of the history of the shell, or given as
    TOKEN. It is a JWT, or a token of POST /token.

    Without --key the signature is not verified. With --key the exit code is 1 if the signature is
    wrong, or if every agent refuses the token, as one that has expired.
    """
    _refuse_arguments(ctx)
    given = _given(token)
    now = time.time()
    try:
        content = content_of(given, now)
    except ValueError as error:
        raise Failed(str(error)) from None
    if key is not None and content.algorithm is None:
        raise click.UsageError(
            "--key: an agent signed this token with a password, and only an agent can verify it"
        )
    verified = None if key is None else is_signed(key, given)
    if as_json:
        print(json.dumps(token_members(content, verified, now)))
    else:
        for line in token_lines(content, verified, now):
            print(line)
    if verified is False:
        raise Failed("the signature of the token is wrong")
    if verified and content.fault:
        raise Failed(f"every agent refuses the token: {content.fault}")


def _given(token: str) -> str:
    if token != "-":
        return token.strip()
    if sys.stdin is not None and sys.stdin.isatty():
        print("Paste the token, then press Enter and Ctrl-D.", file=sys.stderr)
    try:
        return stdin_text(_MAX_STDIN).strip()
    except ValueError as error:
        raise click.UsageError(f"[TOKEN|-]: {error}") from None


def _refuse_arguments(ctx: click.Context) -> None:
    if ctx.args:
        raise click.UsageError("unknown argument; it is not repeated, it may be a secret")
