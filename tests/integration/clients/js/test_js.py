"""The JavaScript client: its own tests, its package, and a consumer over a restart."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clients.following import Following
from tests.kits.clients.restart import agent_on
from tests.kits.contract.wire import wait_until
from tests.kits.documents import pages
from tests.kits.documents.snippets import snippets
from tests.kits.paths import ROOT
from tests.kits.proxies.chaos import ChaosProxy
from tests.kits.servers.ports import free_port

JS = ROOT / "clients" / "js"

_FOLLOW = """
import { Consumer, fileState } from "./node.js";
const [url, path] = process.argv.slice(1);
const consumer = new Consumer(url, { start: "0", state: fileState(path), backoff: [0.01, 0.05],
saveInterval: 0.001 }); for await (const event of consumer) {
  console.log(event.type ? `${event.event} ${event.type}/${event.id}` : event.event);
  if (event.id !== "never") consumer.ack(event);
}
"""


def test_its_own_tests(tmp_path: Path, node: str) -> None:
    with (
        Agent(tmp_path, "--password", "gehéim") as agent,
        ChaosProxy(agent.port, seed=5, most_bytes=40_000) as proxy,
    ):
        # Behind an empty log a stream goes on with states, which tells less than the log.
        agent.post({"event": "insert", "type": "first", "id": "1"})
        environ = {
            **os.environ,
            "OPLOG_TEST_URL": agent.url,
            "OPLOG_TEST_UDP_PORT": str(agent.udp_port),
            "OPLOG_TEST_CHAOS_URL": proxy.url,
            "OPLOG_TEST_PASSWORD": "gehéim",
        }
        files = sorted((JS / "test").glob("*.test.js"))
        code = "".join(f"import {json.dumps(str(path))};" for path in files)
        # One process: `node --test` starts one for each file.
        done = subprocess.run(
            [node, "--input-type=module", "-e", code],
            env=environ,
            capture_output=True,
            text=True,
            timeout=2 * DEADLINE,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "skipped 0" in done.stdout
        assert proxy.cuts >= 5


def test_the_package_has_types_for_every_kind_of_resolution() -> None:
    """node10 reads ``types`` and paths, node16 and bundler read ``exports``."""
    package = json.loads((JS / "package.json").read_text())
    entries = {".": "oplog", "./node": "node"}
    assert package["exports"] == {
        **{
            entry: {"types": f"./{name}.d.ts", "default": f"./{name}.js"}
            for entry, name in entries.items()
        },
        "./package.json": "./package.json",
    }
    for condition in package["exports"]["."], package["exports"]["./node"]:
        assert next(iter(condition)) == "types"  # the first match counts
    assert (package["types"], package["main"]) == ("./oplog.d.ts", "./oplog.js")
    assert (JS / "node.d.ts").is_file()  # node10 resolves oplog-client/node by its path
    assert package["license"] == "MIT"


def test_the_package_holds_the_modules_and_their_types_only(node: str) -> None:
    npm = shutil.which("npm")
    assert npm, "npm is missing: install the package npm"
    command = [npm, "pack", "--dry-run", "--json", "--offline"]
    done = subprocess.run(command, cwd=JS, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    (packed,) = json.loads(done.stdout)
    modules = {f"lib/{path.name}" for path in (JS / "lib").glob("*.js")}
    own = {f"{name}{end}" for name in ("oplog", "node") for end in (".js", ".d.ts")}
    assert {file["path"] for file in packed["files"]} == {
        *modules,
        *own,
        "LICENSE",
        "README.md",
        "package.json",
    }


def test_internals_cannot_be_imported(tmp_path: Path, node: str) -> None:
    install(tmp_path)
    code = 'await import("oplog-client/lib/acks.js").catch((error) => console.log(error.code))'
    done = subprocess.run(
        [node, "--input-type=module", "-e", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert (done.returncode, done.stdout) == (0, "ERR_PACKAGE_PATH_NOT_EXPORTED\n"), done.stderr


def test_a_restart_and_a_kill_lose_nothing(tmp_path: Path, node: str) -> None:
    port = free_port()
    state = tmp_path / "state"
    command = [node, "--input-type=module", "-e", _FOLLOW, f"http://127.0.0.1:{port}", str(state)]
    with agent_on(port, tmp_path) as agent:
        agent.post({"event": "insert", "type": "video", "id": "a"})
        first = Following(command, cwd=JS)
        assert first.take(3) == ["reset", "insert video/a", "live"]
        agent.stop()
    with Agent(tmp_path) as elsewhere:  # these are there before the consumer can come back
        for id_ in ("b", "never", "c"):
            elsewhere.post({"event": "insert", "type": "video", "id": id_})
    with agent_on(port, tmp_path):
        assert first.take(3) == ["insert video/b", "insert video/never", "insert video/c"]
        first.kill()
        second = Following(command, cwd=JS)
        came = second.take(2)
        while came[-2:] != [
            "insert video/never",
            "insert video/c",
        ]:  # more where the last save was earlier
            came += second.take(1)
        second.kill()


def documented(word: str, agent_port: int) -> str:
    (found,) = [
        each for each in snippets(pages.CLIENT["js"]) if (each.language, each.word) == ("js", word)
    ]
    return found.code.replace("localhost:8042", f"127.0.0.1:{agent_port}")


def install(folder: Path) -> None:
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / "oplog-client").symlink_to(JS)


def test_the_documented_copy_is_whole_at_every_run(tmp_path: Path, node: str) -> None:
    install(tmp_path)
    port = free_port()
    for count in (5, 10):
        with agent_on(port, tmp_path) as agent:
            agent.post(
                [{"event": "insert", "type": "video", "id": str(number)} for number in range(count)]
            )
            done = subprocess.run(
                [node, "--input-type=module", "-e", documented("", port)],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=DEADLINE,
            )
            assert (done.returncode, done.stdout) == (0, f"{count + 1} videos\n"), done.stderr


def test_the_documented_consumer_keeps_what_it_built_with_its_position(
    tmp_path: Path, node: str
) -> None:
    install(tmp_path)
    port = free_port()
    kept = tmp_path / "videos.json"

    def follow_until(*videos: str) -> None:
        command = [node, "--input-type=module", "-e", documented("stays", port)]
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert wait_until(
                    lambda: kept.exists() and json.loads(kept.read_text())["videos"] == list(videos)
                ), kept.read_text()
                process.send_signal(signal.SIGTERM)
                assert process.communicate(timeout=DEADLINE)[0] == f"{len(videos)} videos\n"
                assert process.returncode == 0
            finally:
                process.kill()

    with agent_on(port, tmp_path) as agent:
        agent.post([{"event": "insert", "type": "video", "id": id_} for id_ in ("a", "b", "c")])
        follow_until("a", "b", "c")
    with agent_on(port, tmp_path) as agent:
        agent.post({"event": "delete", "type": "video", "id": "b"})
        agent.post({"event": "insert", "type": "video", "id": "d"})
        follow_until("a", "c", "d")


def test_a_full_disk_leaves_the_old_position_whole(tmp_path: Path, node: str) -> None:
    state = tmp_path / "state"
    code = f"""
        import {{ fileState }} from "./node.js";
        const state = fileState({json.dumps(str(state))});
        await state.load();
        await state.save("1").then(() => process.exit(3), (error) => console.log(error.code));
    """
    state.write_text("545b55c7f095528dd0f3863c")
    done = subprocess.run(
        [
            "bash",
            "-c",
            'trap "" XFSZ; ulimit -f 0; exec "$@"',
            "bash",
            node,
            "--input-type=module",
            "-e",
            code,
        ],
        cwd=JS,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert (done.returncode, done.stdout) == (0, "EFBIG\n"), done.stderr
    assert state.read_text() == "545b55c7f095528dd0f3863c"
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
