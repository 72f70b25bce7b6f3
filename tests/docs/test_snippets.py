"""Every snippet of the documents is run by a test, or listed here with a reason."""

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kits.documents import pages
from tests.kits.documents.reader import Reader
from tests.kits.documents.snippets import Snippet, documents, name_of, snippets
from tests.kits.paths import ROOT
from tests.kits.processes.commands import Commands

BOOTSTRAP = "tests/integration/spark/job/test_bootstrap.py"
CLIENT_DOCS = "tests/integration/clients/test_docs.py"
OUTBOX = "tests/docs/test_howto_outbox.py"
PIPE = "tests/docs/test_howto_pipe.py"
USER_PAGES = "tests/browser/test_user_pages.py"
# Document -> language -> the module that runs all its snippets in that language.
ELSEWHERE = {
    "clients/go/README.md": dict.fromkeys(("sh", "go"), CLIENT_DOCS),
    "clients/js/README.md": dict.fromkeys(("sh", "js"), CLIENT_DOCS),
    "clients/php/README.md": {"php": CLIENT_DOCS},
    "clients/python/README.md": {"python": CLIENT_DOCS},
    "docs/reference/client-commands.md": {"sh": CLIENT_DOCS},
    "docs/reference/client-go.md": dict.fromkeys(("go", "sh"), CLIENT_DOCS),
    "docs/reference/client-javascript.md": {"js": CLIENT_DOCS},
    "docs/reference/client-php.md": dict.fromkeys(("php", "sh"), CLIENT_DOCS),
    "docs/reference/client-python.md": dict.fromkeys(("python", "sh"), CLIENT_DOCS),
    "docs/howto/bootstrap.md": dict.fromkeys(("sh", "text"), BOOTSTRAP),
    "docs/howto/outbox.md": dict.fromkeys(("python", "sh", "text", "yaml"), OUTBOX),
    "docs/howto/postgres.md": dict.fromkeys(("python", "sh", "text", "yaml"), PIPE),
    "docs/howto/search-index.md": dict.fromkeys(("python", "sh", "text", "yaml"), PIPE),
    "docs/howto/user-pages.md": dict.fromkeys(("html", "python", "sh", "text"), USER_PAGES),
    "docs/reference/pipe.md": {
        **dict.fromkeys(("yaml", "text"), "tests/unit/pipe/config/test_docs.py"),
        "python": "tests/unit/pipe/test_docs.py",
    },
    "docs/operate/pipe.md": dict.fromkeys(("sh", "text"), "tests/unit/pipe/test_cli_docs.py"),
    "docs/operate/pipe-spark.md": dict.fromkeys(
        ("sh", "yaml"), "tests/integration/spark/pipe/test_command.py"
    ),
    "docs/internals/design.md": {"": "tests/docs/test_layers.py"},
    "docs/reference/rights.md": {
        **dict.fromkeys(("toml", "json"), "tests/unit/access/test_docs.py"),
        "sh": "tests/contract/wire/flags/test_jwt.py",
    },
    "docs/reference/ingest.md": {"json": "tests/docs/test_docs.py"},
    "docs/reference/passwords.md": {
        "sh": "tests/docs/test_docs.py",
        "html": "tests/browser/test_other_origin.py",
    },
    "docs/operate/relay.md": {"text": "tests/unit/relay/test_cli_docs.py"},
    "docs/reference/relay.md": dict.fromkeys(
        ("yaml", "text"), "tests/integration/relay/test_config_docs.py"
    ),
    "docs/reference/spark-topics.md": {"python": "tests/integration/spark/topics/test_docs.py"},
    "docs/reference/spark.md": {"python": "tests/integration/spark/test_docs.py"},
    "docs/operate/spark.md": dict.fromkeys(
        ("python", "sh"), "tests/integration/spark/test_cluster_docs.py"
    ),
}

INSTALLS = "installs packages; tests/deploy/test_checkout.py pastes it into a copy of the checkout"
PICTURE = "a picture"
NAMES = "tests/deploy checks the files and the names in the commands"
MONGOSH = (
    "for MongoDB's own shell; tests/integration/mongo/repair/test_migration.py tries the steps"
)
# Document -> first line of a snippet -> why it is not run.
NOT_RUN = {
    "docs/howto/regions.md": {
        "from oplog_pipe.message import Message": f"{PIPE} runs it",
        "name: west-to-east": f"{PIPE} runs it",
    },
    "README.md": {
        "make demo   # an agent with a small producer; prints what to open and what to paste": (
            "tests/deploy/test_checkout.py runs the demo; the second command runs these tests"
        ),
        "python3 -m venv ~/oplog-try": INSTALLS,
        "producers ──UDP───┐                                          ┌──► consumer   live": (
            PICTURE
        ),
    },
    "docs/operate/deployment.md": {
        "docker build --file deploy/Containerfile --tag oplogd .": f"needs Docker; {NAMES}",
        "docker compose --file deploy/compose.yaml up --build --detach": f"needs Docker; {NAMES}",
        "python3 -m venv /opt/oplog": f"needs root and systemd; {NAMES}",
        "docker compose --file deploy/compose-relay.yaml up --build --detach": (
            f"needs Docker; {NAMES}"
        ),
        "kubectl create secret generic oplog-relay --namespace oplog --from-file=database-url"
        " --from-file=ingest-password": f"needs a cluster; {NAMES}",
        "docker compose --file deploy/compose-pipe.yaml up --build --detach": (
            f"needs Docker; {NAMES}"
        ),
        "systemd-run --pipe --wait --property=DynamicUser=yes --property=User=oplog-pipe"
        " --property=StateDirectory=oplog-pipe \\": f"needs root and systemd; {NAMES}",
        "kubectl create secret generic oplog-pipe --namespace oplog --from-file=database-url"
        " --from-file=oplog-password": f"needs a cluster; {NAMES}",
        "kubectl create namespace oplog": f"needs a cluster; {NAMES}",
        "PATH=/opt/oplog/bin:$PATH SPARK_DRIVER_MEMORY=4g deploy/spark/oplog-sync.sh"
        " --store /var/lib/oplogd/oplog.db --max-deletes 5% /dumps/": (
            "tests/integration/spark/job/test_submit.py runs the script"
        ),
    },
    "docs/internals/design.md": {
        "producers ──UDP──► ingest/udp ─┐                                  "
        "┌─► stream ──► consumers": PICTURE,
    },
    "docs/internals/programs.md": {
        "┌──────────── oplog_relay ─────────────────────────────────────────────┐": PICTURE,
        "┌──────────────────────── oplog_pipe ─────────────────────────────────────────┐": PICTURE,
    },
    "docs/howto/browser.md": {
        "<!doctype html>": "tests/docs/test_howto_browser.py opens it",
        "python -m http.server 8000": "test_howto_browser.py serves the page on a free port",
    },
    "docs/howto/outbox.md": {
        "pip install -c constraints.txt '.[relay]' ./clients/python SQLAlchemy": (
            "needs a package index"
        ),
        "docker run --detach --name shop --env POSTGRES_PASSWORD=secret --env POSTGRES_DB=shop"
        " --publish 127.0.0.1:5432:5432 docker.io/library/postgres:17": "needs Docker",
        "docker compose --file deploy/compose-relay.yaml up --build": f"needs Docker; {NAMES}",
        "service ── one transaction ──► orders + outbox ◄── marks, deletes ── oplog-relay"
        " ── publishes ──► oplogd ──► consumers": PICTURE,
    },
    "docs/reference/relay.md": {
        "publishes with its term": PICTURE,
    },
    "docs/howto/search-index.md": {
        "pip install -c constraints.txt '.[pipe]' ./clients/python": "needs a package index",
        "docker run --detach --name search --env discovery.type=single-node --env"
        " DISABLE_SECURITY_PLUGIN=true --env DISABLE_INSTALL_DEMO_CONFIG=true --publish"
        " 127.0.0.1:9200:9200 docker.io/opensearchproject/opensearch:2": "needs Docker",
        "service ── writes ──► its database ◄── reads ── its API ◄── fetches the object ──"
        " oplog-pipe ── writes ──► index": PICTURE,
    },
    "docs/howto/user-pages.md": {
        "pip install -c constraints.txt '.[jwt]' ./clients/python": "needs a package index",
        'application ── "note n1 of ada changed" ──► oplogd ── operations with the parent'
        " user/ada ──► page of ada": PICTURE,
    },
    "docs/howto/postgres.md": {
        "pip install -c constraints.txt '.[pipe]' ./clients/python": "needs a package index",
        "docker run --detach --name reports --env POSTGRES_PASSWORD=secret --env"
        " POSTGRES_DB=reports --publish 127.0.0.1:5432:5432 docker.io/library/postgres:17": (
            "needs Docker"
        ),
        'service ── "order 1 changed" ──► oplogd ──► oplog-pipe ── one row per order ──►'
        " PostgreSQL": PICTURE,
    },
    "docs/reference/pipe.md": {
        "┌───────────────────────── oplog-pipe ──────────────────────────┐": PICTURE,
    },
    "docs/operate/migration.md": {
        'db.oplog_states.countDocuments({ event: "insert" });': MONGOSH,
        "db.oplog_ops_of_first_server.drop();": MONGOSH,
        "db.oplog_ops.drop();": MONGOSH,
    },
    "docs/internals/releasing.md": {"make dist": "tests/deploy/test_packages.py runs it"},
    "docs/operate/mongodb.md": {
        "pip install -c constraints.txt '.[mongo]'": "needs a package index",
        "oplogd --mongo-url 'mongodb://db1,db2,db3/oplog?replicaSet=rs0'": "needs a replica set",
    },
    "docs/operate/spark.md": {
        "pip wheel --no-deps -w . . && mv oplog-*.whl oplog.zip": (
            "tests/deploy/test_checkout.py builds it; test_cluster_docs.py makes a smaller one"
        ),
        "pip install -c constraints.txt --target libs . pandas pyarrow pymongo": (
            "needs a package index; test_cluster_docs.py makes such a folder without the libraries"
        ),
        "spark-pipelines --conf spark.sql.catalogImplementation=hive run": (
            "tests/integration/spark/test_pipelines.py runs it"
        ),
    },
    "docs/start/quickstart.md": {"python3 -m venv ~/oplog-try": INSTALLS},
    "docs/reference/sync.md": {
        "pip install -c constraints.txt '.[sync]'": (
            "tests/deploy/test_packages.py installs the extra"
        ),
        "oplog-sync --store oplog.db dump.jsonl.gz": "docs/howto/bootstrap.md runs the command",
        '{"timestamp":"2014-11-06T03:04:39.041-08:00","parents":["user/x3kd2"],'
        '"type":"video","id":"xekw"}': "a row; integration/spark/test_formats.py reads such rows",
        "type   insert  update  delete  untouched  skipped  invalid  duplicate": (
            "a report, as in docs/howto/bootstrap.md"
        ),
        "spark-submit --master 'local[8]' --driver-memory 8g "
        """"$(python -c 'import oplog_sync; print(oplog_sync.__path__[0])')/__main__.py" \\""": (
            "tests/integration/spark/job/test_submit.py submits it on a smaller machine"
        ),
        "oplog-sync --mongo-url 'mongodb://db1,db2,db3/oplog?replicaSet=rs0' dump.jsonl.gz": (
            "needs a replica set"
        ),
        "pip wheel --no-deps -w . . && mv oplog-*.whl oplog.zip": (
            "tests/deploy/test_checkout.py builds it,"
            " tests/integration/spark/job/test_submit.py submits it to a cluster"
        ),
    },
}

RUNNABLE = {("sh", ""), ("sh", "stays"), ("python", ""), ("text", ""), ("text", "stays")}


def unaccounted(name: str, found: list[Snippet]) -> list[Snippet]:
    """Return the snippets of a document that are neither run nor listed."""
    listed = NOT_RUN.get(name, {})
    left = []
    for number, snippet in enumerate(found):
        if snippet.first in listed:
            continue
        if name in ELSEWHERE:
            known = snippet.language in ELSEWHERE[name]
        elif snippet.word in ("", "stays"):
            known = (snippet.language, snippet.word) in RUNNABLE
        else:  # saved in a file, which a later command must use
            known = any(
                snippet.word in later.code
                for later in found[number + 1 :]
                if later.language == "sh"
            )
        if not known:
            left.append(snippet)
    return left


def test_every_snippet_is_run_or_listed_with_the_reason() -> None:
    left = {name_of(path): unaccounted(name_of(path), snippets(path)) for path in documents()}
    assert {name: found for name, found in left.items() if found} == {}


def test_nothing_is_listed_that_is_not_there() -> None:
    there = {name_of(path): {snippet.first for snippet in snippets(path)} for path in documents()}
    stale = {
        (name, first)
        for name, listed in NOT_RUN.items()
        for first in listed
        if first not in there.get(name, set())
    }
    assert stale == set()
    places = {name: path for name, path in vars(pages).items() if isinstance(path, Path)}
    constants = {path: f"pages.{name}" for name, path in places.items()}
    constants |= dict.fromkeys(pages.CLIENT.values(), "pages.CLIENT")
    for name, modules in ELSEWHERE.items():
        for language, module in modules.items():
            assert any(snippet.language == language for snippet in snippets(ROOT / name))
            text = (ROOT / module).read_text(encoding="utf-8")
            assert Path(name).name in text or constants.get(ROOT / name, name) in text


@pytest.mark.parametrize("info", ["", "toml", "js", "sh sometimes", "python unused.py"])
def test_a_new_snippet_that_is_not_run_is_noticed(info: str) -> None:
    language, _, word = info.partition(" ")
    new = Snippet(1, language, word, "something new\n", "")
    page = pages.QUICKSTART
    assert unaccounted(name_of(page), [*snippets(page), new]) == [new]


def walked(document: Path) -> bool:
    listed = NOT_RUN.get(name_of(document), {})
    return name_of(document) not in ELSEWHERE and any(
        each.first not in listed for each in snippets(document)
    )


# These documents are read with the commands as they are installed, the others with forks of them.
INSTALLED = {"docs/start/quickstart.md"}
# Command -> arguments of Python.
COMMANDS = {
    "oplogctl": "-m oplogc.ctl",
    "oplogd": "-m oplogd",
    "oplog-tail": "-m oplogc.tail",
    "python": "",
}
WALKED = [path for path in documents() if walked(path)]


@pytest.mark.parametrize("document", WALKED, ids=name_of)
def test_a_reader_who_pastes_everything_sees_what_is_shown_and_again_after_a_restart(
    document: Path, tmp_path: Path
) -> None:
    def prepare() -> None:
        if name_of(document).startswith("clients/"):  # these pages expect a running agent
            reader.start_agent([])

    with ExitStack() as stack:
        path = Path(sys.executable).parent
        if name_of(document) not in INSTALLED:
            path = tmp_path / ".bin"
            stack.enter_context(Commands(path, COMMANDS))
        reader = stack.enter_context(Reader(tmp_path, path=path))
        reader.read_twice(document, NOT_RUN.get(name_of(document), {}), prepare)
