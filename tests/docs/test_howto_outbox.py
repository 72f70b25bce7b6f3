"""A reader pastes everything in docs/howto/outbox.md and sees what the page shows."""

import re
import signal
from pathlib import Path

from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.contract.wire import wait_until
from tests.kits.documents import pages, strict, walk
from tests.kits.documents.snippets import Snippet, snippets
from tests.kits.servers.postgres import PostgresServer

PAGE = pages.OUTBOX
# They need packages or containers: tests/deploy/test_checkout.py and tests/deploy try them.
ELSEWHERE = ("pip install", "docker ")
# Shorter than the defaults, so that the page need not wait for expiry and back-off. A leader on a
# busy machine must not lose its lease.
LIMITS = "limits: {heartbeat: 1s, session: 5s, blocked_backoff: [100ms, 100ms]}\n"
_VARYING = re.compile(r"\b\d+ attempts?\b|\b\d{4}-\d\d-\d\d[ T][\d:.]+\+00:00")


class Walk(walk.Walk):
    """A reader with an agent, a database and terminals."""

    commands = {  # noqa: RUF012
        "oplog-relay": "-m oplog_relay",
        "oplogctl": "-m oplogc.ctl",
        "python": "",
        "uvicorn": "-m uvicorn",
    }
    looks = may_fail = re.compile("oplogctl|oplog-relay status")

    def __init__(self, folder: Path, postgres: PostgresServer, agent: Agent) -> None:
        self._postgres = postgres
        self._database = postgres.new_database().rpartition("/")[2]
        addresses = {
            "localhost:5432/shop": f"127.0.0.1:{postgres.port}/{self._database}",
            "localhost:8042": f"127.0.0.1:{agent.port}",
        }
        super().__init__(folder, addresses, OPLOGCTL_URL=agent.url)

    def paste(self, snippet: Snippet) -> None:
        if "Ctrl-C" in snippet.prose:
            self.press_ctrl_c()
        code = self.here(snippet.code)
        match snippet.language, snippet.word:
            case "sh", "stays":
                if not snippet.first.startswith("oplogd"):
                    self.stay(code)
            case "sh", "":
                if "kill -9" in code:
                    self._wait_empty()  # so that no row comes twice
                self.run(code)
            case "python", "":
                (self.folder / "pasted.py").write_text(code)
                self.run(f"python {strict.__file__} pasted.py")
            case "text", "":
                self.compare(code)
            case _, name:
                assert name
                limits = LIMITS if name.endswith(".yaml") else ""
                (self.folder / name).write_text(code + limits)

    def press_ctrl_c(self) -> None:
        """Press Ctrl-C in all terminals. One process is killed already."""
        for process in self.staying:
            process.send_signal(signal.SIGINT)
            assert process.wait(DEADLINE) in (0, -signal.SIGINT, -signal.SIGKILL), self.errors
        self.staying.clear()
        assert "Traceback" not in self.errors, self.errors

    def shape(self, text: str) -> list[str]:
        return super().shape(_VARYING.sub("<varying>", text))

    def _wait_empty(self) -> None:
        count = "SELECT count(*) FROM outbox"
        assert wait_until(lambda: self._postgres.run(count, self._database) == [(0,)])


def test_a_reader_who_pastes_everything_sees_what_is_shown(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    with Agent(tmp_path) as agent, Walk(tmp_path, postgres, agent) as reader:
        for snippet in snippets(PAGE):
            if snippet.language and not snippet.first.startswith(ELSEWHERE):
                reader.paste(snippet)
        reader.press_ctrl_c()
        assert "handed over" in reader.run("oplog-relay status -f relay.yaml")
