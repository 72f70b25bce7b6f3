"""URLs of MongoDB that cannot be used: messages never show a part of a secret."""

import sys
from pathlib import Path

import pytest

from oplog_sync.backend import make_backend
from oplog_sync.errors import OptionError
from oplogd.errors import StoreFlagError
from oplogd.store.mongo.link.errors import UNREADABLE, shown
from oplogd.store.mongo.link.link import Link
from tests.kits.agents.agent import DEADLINE
from tests.kits.processes import forked

SECRET = ("hunter", "secret", "s3")


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("mongodb://h1:1,h2/db", "h1:1,h2"),
        ("mongodb://user:hunter@h1:1,h2:2/db?replicaSet=rs", "h1:1,h2:2"),
        ("mongodb://user:hunter%40s3%2Fsecret@h/db", "h"),
        ("mongodb://user:hunter@secret@h/db", "h"),
        ("mongodb://user:hunter/secret@h/db", UNREADABLE),
        ("mongodb://user:1/secret@h/db", UNREADABLE),
        ("mongodb://user:hunter?secret@h/db", UNREADABLE),
        ("mongodb://user:1?secret=s3@h/db", UNREADABLE),
        ("mongodb://user:hunter@secret/s3@h/db", UNREADABLE),
        ("mongodb://user:hunter@secret?s3@h/db", UNREADABLE),
        ("mongodb://user:hunter@secret?s3=x@h/db", UNREADABLE),
        ("mongodb://user:hunter/secret?authSource=s3@h/db", UNREADABLE),
        ("mongodb://user:27017/?authSource=secret@h/db", UNREADABLE),
        ("mongodb://user:hunter/db", UNREADABLE),
        ("mongodb://user:hunter", UNREADABLE),
        ("mongodb://h1,user:s3,h2/db", UNREADABLE),
        ("mongodb://h/?authMechanismProperties=AWS_SESSION_TOKEN:secret@hunter", "h"),
        ("mongodb://user:hunter@h/?authMechanismProperties=AWS_SESSION_TOKEN:secret@s3", "h"),
        ("mongodb://user:hunter@h/?tlsCertificateKeyFilePassword=secret/s3", "h"),
        ("mongodb+srv://user:hunter@cluster.example.com/db", "cluster.example.com"),
        ("mongodb://user:hunter@[::1]:27017/db", "[::1]:27017"),
        ("mongodb://user:hunter@%2Ftmp%2Fmongodb.sock/db", "%2Ftmp%2Fmongodb.sock"),
        ("mongodb://user:hunter@/db", "no host"),
        ("mongodb://", "no host"),
    ],
)
def test_the_hosts_of_a_url_are_shown_and_no_part_of_a_secret(url: str, hosts: str) -> None:
    assert shown(url) == hosts
    assert not any(part in shown(url) for part in SECRET)


UNUSABLE = [
    ("mongodb://user:hunter@h:port/", "percent-encode|one of its options"),
    ("mongodb://user:hunter@h:99999/", "one of its options"),
    ("mongodb://user:hunter@secret@h/db", "percent-encode user and password"),
    ("mongodb://user:hunter/secret@h/db", "percent-encode user and password"),
    ("mongodb://user:1/secret@h/db", "percent-encode user and password"),
    ("mongodb://user:hunter?secret@h/db", "percent-encode user and password"),
    ("mongodb://user:hunter@secret/s3@h/db", "percent-encode user and password"),
    ("mongodb://user:hunter%zz@h/db", "percent-encode user and password"),
    ("mongodb://user:hunter@/db", "one of its options"),
    ("mongodb://", "its form"),
    ("mongodb://user:hunter@h/?maxPoolSize=x", "one of its options"),
    ("mongodb://user:hunter@h/?compressors=secret", "one of its options"),
    ("mongodb://user:hunter@h/?authMechanism=SECRET", "one of its options"),
    ("mongodb://user:hunter@h/?readPreference=secret", "one of its options"),
    (
        "mongodb://user:hunter@h/?tls=true&tlsCAFile=/nope/secret",
        r"tlsCAFile cannot be used \(No such file",
    ),
    (
        "mongodb://user:hunter@h/?tls=true&tlsCertificateKeyFile=/nope/secret",
        r"tlsCertificateKeyFile cannot be used",
    ),
    ("mongodb://user:hunter@h/?tls=true&tlsCAFile=/etc/passwd", "tlsCAFile cannot be used"),
    ("mongodb://h1,h2/?directConnection=true", "one of its options"),
]


@pytest.mark.parametrize(("url", "reason"), UNUSABLE)
def test_a_url_that_cannot_be_used_is_refused_without_its_secret(url: str, reason: str) -> None:
    with pytest.raises(StoreFlagError, match=rf"^--mongo-url .*({reason})") as refused:
        Link(url)
    with pytest.raises(OptionError, match=rf"^--mongo-url .*({reason})") as refused_by_sync:
        make_backend(url)
    for error in (refused.value, refused_by_sync.value):
        assert not any(part in str(error) for part in SECRET)


@pytest.mark.parametrize("module", ["oplogd", "oplog_sync"])
@pytest.mark.parametrize(
    "url",
    [
        "mongodb://user:hunter/secret@h/db",
        "mongodb://user:hunter@h/?tls=true&tlsCAFile=/nope/secret",
    ],
)
def test_a_command_with_an_unusable_url_ends_with_2_and_one_line(
    module: str, url: str, tmp_path: Path
) -> None:
    flags = ["--listen", "127.0.0.1:0"] if module == "oplogd" else [str(tmp_path / "dump.jsonl")]
    command = [sys.executable, "-m", module, "--mongo-url", url, *flags]
    ended = forked.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert ended.returncode == 2
    assert "--mongo-url" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert not any(part in ended.stderr + ended.stdout for part in SECRET)
