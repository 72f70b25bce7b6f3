"""The secret of a store leaves the agent in no answer and in no line of its log."""

import base64
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.kits.agents.agent import Agent


def test_no_answer_and_no_line_of_the_log_has_the_secret(tmp_path: Path) -> None:
    with Agent(tmp_path, "--debug") as agent:
        with closing(sqlite3.connect(tmp_path / "oplog.db")) as db:
            (secret,) = db.execute("SELECT store FROM secret").fetchone()
        paths = ("/", "/status", "/metrics", "/live", "/ready", "/openapi.json", "/nothing")
        answers = [agent.request("GET", path) for path in paths]
        told = [agent.text(), *(f"{dict(each.headers)} {each.body!r}" for each in answers)]
    assert len(secret) == 32
    shown = {secret.hex(), repr(secret)[2:-1], base64.b64encode(secret).decode()[:-1]}
    shown.add(base64.urlsafe_b64encode(secret).decode()[:-1])
    for text in told:
        assert not [each for each in shown if each.lower() in text.lower()]
