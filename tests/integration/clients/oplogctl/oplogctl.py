"""``oplogctl topic`` as a process."""

import os
import subprocess
import sys

from tests.kits.agents.agent import DEADLINE
from tests.kits.processes import forked


def start(
    url: str, *arguments: str, environ: dict[str, str] | None = None, **popen: object
) -> "subprocess.Popen[str]":
    streams: dict[str, object] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return forked.start(
        [sys.executable, "-m", "oplogc.ctl", "topic", *arguments],
        env={**os.environ, "OPLOGCTL_URL": url, **(environ or {})},
        **(streams | {"text": True} | popen),
    )


def run(
    url: str, *arguments: str, stdin: str = "", environ: dict[str, str] | None = None
) -> tuple[int, str, str]:
    process = start(url, *arguments, environ=environ)
    out, err = process.communicate(stdin, timeout=DEADLINE)
    assert "Traceback" not in err
    return process.returncode, out, err
