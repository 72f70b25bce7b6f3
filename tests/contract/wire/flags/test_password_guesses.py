"""The limits on guessing the password of an agent."""

import json
from pathlib import Path

from tests.kits.agents.agent import Agent
from tests.kits.clock.moved import MovedAgent, MovedClock
from tests.kits.contract.passwords import LOGIN, READER, WRITER, basic, sign_in
from tests.kits.contract.wire import JSON, SSE, Target, operation


def test_after_many_different_wrong_passwords_no_more_are_checked(tmp_path: Path) -> None:
    clock = MovedClock(tmp_path)
    clock.hold()  # else a guess becomes possible every ten seconds
    flags = ("--password", READER, "--ingest-password", WRITER)
    with MovedAgent(tmp_path, *flags, environ=clock.environ) as agent:
        target = Target.of(agent)
        cookie = sign_in(target)
        for _ in range(30):
            assert (
                target.request("GET", "/ops", headers={**SSE, **basic("an old one")}).status == 401
            )
        for number in range(9):
            assert (
                target.request("POST", "/session", b'{"password": "%d"}' % number, JSON).status
                == 401
            )
        for reply in (
            target.request("GET", "/ops", headers={**SSE, **basic(READER)}),
            target.request("POST", "/session", json.dumps(LOGIN).encode(), JSON),
            target.request("POST", "/token", b"", basic(READER)),
        ):
            assert reply.status == 429
            assert 1 <= int(reply.header("Retry-After") or "") <= 10
            assert "wrong passwords" in reply.problem()
        assert "consumers" not in target.request("GET", "/status", headers=basic(READER)).json
        assert target.request("GET", "/ops", headers={**SSE, **basic("an old one")}).status == 401
        assert "consumers" in target.request("GET", "/status", headers={"Cookie": cookie}).json
        assert (
            target.post(operation("insert", "a", "thing"), {**JSON, **basic(WRITER)}).status == 204
        )
        agent.wait_log("too many wrong passwords: passwords from 127.0.0.1")


def test_guesses_from_all_addresses_of_a_network_count_together(tmp_path: Path) -> None:
    with Agent(tmp_path, "--password", READER) as agent:
        target = Target.of(agent)

        def ask(address: str, password: str) -> int:
            headers = {**SSE, **basic(password), "X-Forwarded-For": address}
            return target.request("HEAD", "/ops", headers=headers).status

        def is_locked_out(neighbour: str) -> bool:
            return (
                429 in [ask(neighbour, f"{neighbour} {number}") for number in range(3)]
                and ask(neighbour, READER) == 429
            )

        known, stranger = "2001:db8:1:ffff::1", "2001:db8:2::1"
        assert ask(known, READER) == 200
        answers = [ask(f"2001:db8:1:{number:x}::1", f"guess {number}") for number in range(100)]
        looked_at = answers.count(401)
        assert (set(answers), answers[:40]) == ({401, 429}, [401] * 40)
        assert looked_at < 100
        assert [ask(address, READER) for address in (known, stranger)] == [200, 200]
        # Now and then one more guess becomes possible, so one of these requests may be checked.
        assert any(is_locked_out(f"2001:db8:1:{number:x}::2") for number in range(1000, 1010))
