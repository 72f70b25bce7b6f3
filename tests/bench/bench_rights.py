"""Compare clients with tokens of their own to clients that share a password.

Each consumer has another token (JWT), of the same right, beside consumers with one password:
the agent's CPU time per operation while all of them follow. Then posts of one operation with a
token beside posts with a password. Both kinds take turns, each with an empty store. The load of
the posts is a program in Go.

    python -m tests.bench.bench_rights [--consumers 1000] [--rate 100] [--quick]
"""

import argparse
import base64
import functools
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import jwt
import uvloop

from oplogd.server import raise_file_limit
from tests.bench import bench_http, kit
from tests.bench.bench_fanout import REQUEST, FanoutResult, measure
from tests.bench.go_programs import go_build
from tests.bench.topic_load import oplog_request
from tests.kits.agents.agent import NewAgent
from tests.kits.servers.room import UnavailableError

SECRET = "a secret of more than 32 bytes, for benchmarks"
PASSWORD = "a password"
TOKENS, SHARED = "a token each", "one password"

# The value of Authorization of a client, by its number.
Authorization = Callable[[int], str]


def token(number: int) -> str:
    claims = {
        "exp": time.time() + 3_600,
        "sub": f"client-{number}",
        "oplog": {"read": ["*"], "write": ["*"]},
    }
    return f"Bearer {jwt.encode(claims, SECRET, 'HS256')}"


def password(_: int) -> str:
    return "Basic " + base64.b64encode(f":{PASSWORD}".encode()).decode()


KINDS: dict[str, Authorization] = {TOKENS: token, SHARED: password}


def authorized(request: bytes, authorization: str) -> bytes:
    line, _, rest = request.partition(b"\r\n")
    return line + b"\r\nAuthorization: " + authorization.encode() + b"\r\n" + rest


@contextmanager
def agent() -> Iterator[NewAgent]:
    """Run an agent that takes both kinds of clients."""
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "key"
        key.write_text(SECRET)
        flags = ("--password", PASSWORD, "--ingest-password", PASSWORD, "--token-key", str(key))
        with NewAgent(Path(folder), *flags) as started:
            yield started


def fanout(kind: Authorization, args: argparse.Namespace) -> FanoutResult:
    def request(number: int) -> bytes:
        return authorized(REQUEST, kind(number))

    with agent() as started:
        return uvloop.run(measure(started.port, started.udp_port, started.pid, args, request))


def posts(kind: Authorization, load: Path, args: argparse.Namespace) -> bench_http.Rate:
    def request(number: int) -> bytes:
        return authorized(oplog_request(number, 1), kind(number))

    with agent() as started:
        target = bench_http.Target(agent, "http", request)  # type: ignore[arg-type]  # not run
        return bench_http.measure(load, target, started.port, started.pid, args)


def main() -> None:
    parser = kit.parser(__doc__)
    parser.add_argument("--consumers", type=int, default=1_000)
    parser.add_argument("--rate", type=int, default=100, help="operations per second")
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each measurement")
    parser.add_argument("--connections", type=int, default=64, help="connections that post")
    parser.add_argument("--repeat", type=int, default=5, help="turns of both kinds")
    parser.add_argument("--quick", action="store_true", help="small numbers, to try it")
    args = parser.parse_args()
    if args.quick:
        args.consumers, args.seconds, args.repeat = 50, 1.0, 1
    raise_file_limit()
    followed = kit.in_turn(
        {name: functools.partial(fanout, kind, args) for name, kind in KINDS.items()},
        args.repeat,
        "follow, ",
    )
    operations = args.rate * args.seconds
    figures = [
        kit.compared(
            "server, per operation", "ms of CPU", TOKENS, followed,
            lambda each: 1_000 * each.server_cpu_seconds / operations,
        ),
        kit.compared("lost events", "events", TOKENS, followed, lambda each: each.lost),
    ]  # fmt: skip
    try:
        load = go_build("load")
    except UnavailableError as error:
        raise SystemExit(f"No figures without the load: {error}") from None
    posted = kit.in_turn(
        {name: functools.partial(posts, kind, load, args) for name, kind in KINDS.items()},
        args.repeat,
        "post, ",
    )
    figures += [
        kit.compared("posts", "requests/s", TOKENS, posted, lambda each: each.requests),
        kit.compared("posts: server", "µs of CPU", TOKENS, posted, lambda each: each.cpu_us),
    ]
    kit.finish(f"{args.consumers:,} consumers and {args.connections} producers", figures, args)


if __name__ == "__main__":
    main()
