"""Real clients that offer an upgrade unasked: every operation of an acknowledged body is stored."""

import http.client
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.servers.mongo import GO_FLAGS, go_program
from tests.kits.web.connection import lines

# Operations in a batch. The larger batch has half a megabyte: many packets.
SMALL, LARGE = 3, 1_000
PADDING = b',"parents":["%s"]}' % (b"p" * 500)

JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
JAVA = """
import java.net.URI;
import java.net.http.*;
import java.nio.file.*;

class Post {
    public static void main(String[] arguments) throws Exception {
        // Not told otherwise, it prefers HTTP/2 and so offers an upgrade with its first request.
        for (int at = 1; at < arguments.length; at += 2) {
            var client = HttpClient.newHttpClient();
            var file = Path.of(arguments[at + 1]);
            for (boolean expect : new boolean[] {false, true}) {
                for (var body : new HttpRequest.BodyPublisher[] {
                        HttpRequest.BodyPublishers.ofFile(file),
                        HttpRequest.BodyPublishers.ofInputStream(() -> open(file))}) {
                    var request = HttpRequest.newBuilder(URI.create(arguments[0]))
                        .header("Content-Type", arguments[at])
                        .expectContinue(expect).POST(body).build();
                    var response = client.send(request, HttpResponse.BodyHandlers.ofString());
                    System.out.println(response.statusCode() + " " + response.body());
                    client = HttpClient.newHttpClient();
                }
            }
        }
    }

    static java.io.InputStream open(Path file) {
        try {
            return Files.newInputStream(file);
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }
}
"""

NODE = """
const [url, ...rest] = process.argv.slice(2);
const { readFileSync } = require("fs");
const http = require("http");
const offer = {
  Connection: "Upgrade, HTTP2-Settings",
  Upgrade: "h2c",
  "HTTP2-Settings": "AAMAAABkAARAAAAAAAIAAAAA",
};
const viaHttp = (type, body) => new Promise((resolve, reject) => {
  const options = { method: "POST", headers: { "Content-Type": type, ...offer } };
  const request = http.request(url, options, (response) => {
    let text = "";
    response.on("data", (part) => (text += part));
    response.on("end", () => resolve(`${response.statusCode} ${text}`));
  });
  request.on("error", reject);
  request.write(body.subarray(0, 40)); // chunked, in two packets
  setImmediate(() => request.end(body.subarray(40)));
});
const viaFetch = async (type, body) => {
  const response = await fetch(url, { method: "POST", headers: { "Content-Type": type }, body });
  return `${response.status} ${await response.text()}`;
};
(async () => {
  for (let at = 0; at < rest.length; at += 2) {
    const body = readFileSync(rest[at + 1]);
    for (const post of [viaFetch, viaHttp]) console.log(await post(rest[at], body));
  }
})();
"""

GO = """
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	for at := 2; at+1 < len(os.Args); at += 2 {
		for _, offered := range []bool{false, true} {
			file, err := os.Open(os.Args[at+1]) // no length is known: chunked
			if err != nil {
				panic(err)
			}
			request, _ := http.NewRequest("POST", os.Args[1], file)
			request.Header.Set("Content-Type", os.Args[at])
			if offered {
				request.Header.Set("Connection", "Upgrade, HTTP2-Settings")
				request.Header.Set("Upgrade", "h2c")
				request.Header.Set("HTTP2-Settings", "AAMAAABkAARAAAAAAAIAAAAA")
				request.Header.Set("Expect", "100-continue")
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				panic(err)
			}
			text, _ := io.ReadAll(response.Body)
			fmt.Println(response.StatusCode, string(text))
		}
	}
}
"""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(tmp_path_factory.mktemp("agent")) as agent:
        yield agent


@pytest.fixture(scope="module")
def bodies(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Path, int]]:
    """Return type, file and number of operations of bodies: one operation, arrays, NDJSON."""
    folder = tmp_path_factory.mktemp("bodies")
    found = []
    for count in (1, SMALL, LARGE):
        batch = lines(count).replace(b"}", PADDING if count == LARGE else b"}")
        found.append(("application/x-ndjson", folder / f"{count}.jsonl", count))
        found[-1][1].write_bytes(batch)
        found.append(("application/json", folder / f"{count}.json", count))
        one = count == 1
        found[-1][1].write_bytes(batch if one else b"[" + batch.strip().replace(b"\n", b",") + b"]")
    return found


def check(
    agent: Agent, command: list[str], bodies: list[tuple[str, Path, int]], times: int
) -> None:
    """Check that every answer has the number of its body, and that exactly these operations are
    stored.
    """
    before = agent.status()["events_ingested"]
    arguments = [str(part) for type_, path, _ in bodies for part in (type_, path)]
    done = subprocess.run(
        [*command, agent.url, *arguments], capture_output=True, text=True, timeout=4 * DEADLINE
    )
    assert done.returncode == 0, done.stderr
    expected = []
    for type_, _, count in bodies:
        single = count == 1 and type_ == "application/json"
        expected += ["204" if single else f'200 {{"ingested":{count}}}'] * times
    assert [line.strip() for line in done.stdout.splitlines()] == expected
    assert agent.status()["events_ingested"] - before == times * sum(
        count for _, _, count in bodies
    )


def needs(program: str) -> str:
    found = shutil.which(program)
    assert found, f"{program} is missing: run tests/setup"
    return found


def test_java(agent: Agent, bodies: list[tuple[str, Path, int]], tmp_path: Path) -> None:
    (tmp_path / "Post.java").write_text(JAVA)
    check(agent, [needs("java"), *JAVA_OPTIONS, str(tmp_path / "Post.java")], bodies, 4)


@pytest.mark.node
def test_node(agent: Agent, bodies: list[tuple[str, Path, int]], tmp_path: Path) -> None:
    (tmp_path / "post.js").write_text(NODE)
    check(agent, [needs("node"), str(tmp_path / "post.js")], bodies, 2)


@pytest.mark.go
def test_go(agent: Agent, bodies: list[tuple[str, Path, int]], tmp_path: Path) -> None:
    (tmp_path / "post.go").write_text(GO)
    environ = {**os.environ, "GOPROXY": "off", "GOFLAGS": GO_FLAGS, "CGO_ENABLED": "0"}
    built = [go_program(), "build", "-o", str(tmp_path / "post"), str(tmp_path / "post.go")]
    done = subprocess.run(built, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    check(agent, [str(tmp_path / "post")], bodies, 2)


def curl(agent: Agent, *arguments: str) -> "subprocess.CompletedProcess[str]":
    write = ("-w", " %{http_code}\\n")
    command = [needs("curl"), "-sS", "--max-time", str(DEADLINE), *arguments, *write, agent.url]
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * DEADLINE)


@pytest.mark.parametrize(
    "how",
    [
        ["--http2"],
        ["--http2", "-H", "Transfer-Encoding: chunked"],
        ["--http2", "-H", "Expect: 100-continue"],
        ["--http2", "--limit-rate", "10M"],
        ["-H", "Connection: Upgrade", "-H", "Upgrade: websocket"],
        ["--http1.0"],
    ],
    ids=" ".join,
)
def test_curl(agent: Agent, bodies: list[tuple[str, Path, int]], how: list[str]) -> None:
    for type_, path, count in bodies:
        before = agent.status()["events_ingested"]
        done = curl(agent, *how, "-H", f"Content-Type: {type_}", "--data-binary", f"@{path}")
        single = count == 1 and type_ == "application/json"
        assert done.stdout.strip() == ("204" if single else f'{{"ingested":{count}}} 200'), (
            done.stderr
        )
        assert agent.status()["events_ingested"] - before == count


def test_curl_that_speaks_http_2_at_once_is_refused(
    agent: Agent, bodies: list[tuple[str, Path, int]]
) -> None:
    before = agent.status()["events_ingested"]
    type_, path, _ = bodies[0]
    done = curl(
        agent,
        "--http2-prior-knowledge",
        "-H",
        f"Content-Type: {type_}",
        "--data-binary",
        f"@{path}",
    )
    assert done.returncode != 0
    assert agent.status()["events_ingested"] == before


def test_python(agent: Agent) -> None:
    """The body has no `Content-Length` and comes in parts."""
    connection = http.client.HTTPConnection("127.0.0.1", agent.port, timeout=DEADLINE)
    headers = {"Content-Type": "application/x-ndjson", "Connection": "Upgrade", "Upgrade": "h2c"}
    connection.request("POST", "/", iter([lines(2), lines(3)]), headers, encode_chunked=True)
    assert json.loads(connection.getresponse().read()) == {"ingested": 5}
    connection.close()
