import os
import random
import subprocess
import sys

from tests.kits.paths import ROOT
from tests.kits.run.needs import SOAK


def run_tests(*arguments: str, examples: int | None = None) -> None:
    """Run these tests in a process of their own, with another seed each time."""
    seed = str(random.randrange(2**32))
    environ = {name: value for name, value in os.environ.items() if name != SOAK}
    environ["OPLOG_TEST_RANDOM"] = "1"
    if examples is not None:
        environ["OPLOG_TEST_EXAMPLES"] = str(examples)
    options = ["-q", "-x", "-p", "no:cacheprovider", f"--hypothesis-seed={seed}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"seed {seed}\n{done.stdout}{done.stderr}"
    assert " passed" in done.stdout
    assert " skipped" not in done.stdout
