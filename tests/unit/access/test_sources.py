"""Files of passwords and rights are read again, and a broken one never opens or closes anything."""

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from oplogd.config.command import parse
from oplogd.config.secret_files import passwords_in
from oplogd.errors import SettingError
from oplogd.web.access.content import Content
from oplogd.web.access.keys.scrypt import parse_hash
from oplogd.web.access.sources import Sources
from tests.kits.web.token_keys import private, public_pem

CHEAP = "$scrypt$ln=4,r=1,p=1$c2FsdHNhbHQ$JI3Qpr7Fqtxk5rLZMuIhJJqMcTzHBTq5w0dNY2Zo0ps"
ADA = f'[ada]\npassword_hash = "{CHEAP}"\nread = ["shop/*"]\n'
SECRET = b"a secret of the application, of 32 bytes"
KEPT = "; the content before it stays in use"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "passwords"
    file.write_text("one\ntwo\n")
    return file


@pytest.fixture
def sources(file: Path) -> Sources:
    return Sources(parse(["--ingest-password-file", str(file)], {}))


def written(text: str) -> Callable[[Path], object]:
    return lambda file: file.write_text(text)


def replaced_by_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def looks(sources: Sources, times: int = 2) -> list[Content | None]:
    """Look so often, each time from the content in use."""
    found: list[Content | None] = []
    present = sources.content()
    for _ in range(times):
        found.append(sources.look(present))
        present = found[-1] or present
    return found


def test_a_new_content_counts_at_the_second_equal_look(sources: Sources, file: Path) -> None:
    assert sources.content().writing == ["one", "two"]
    assert looks(sources, 3) == [None, None, None]
    file.write_text("two\nthree")
    first, second, third = looks(sources, 3)
    assert (first, third) == (None, None)
    assert second is not None
    assert (second.writing, second.errors) == (["two", "three"], [])


def test_a_content_that_changes_at_each_look_is_half_written(sources: Sources, file: Path) -> None:
    for length in range(1, 15):
        file.write_text("a long password"[:length])
        assert looks(sources, 1) == [None], length
    assert sources.content().writing == ["one", "two"]


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (written(""), "'passwords' is empty"),
        (written("\n \n"), "'passwords' is empty"),
        (Path.unlink, "cannot read 'passwords': No such file or directory"),
        (lambda file: file.write_bytes(b"\xff"), "'passwords' is not UTF-8 text"),
        (written("x" * 4_097), "'passwords' has a password of more than 4,096 bytes"),
        (
            written("".join(f"{n}\n" for n in range(33))),
            "'passwords' has 33 passwords, at most 32 are possible",
        ),
        (lambda file: (file.unlink(), file.mkdir()), "cannot read 'passwords': Is a directory"),
        (written("\0" * 7), "'passwords' has control characters, which no password has"),
        (written("one\ntwo\0\0"), "'passwords' has control characters, which no password has"),
        (
            lambda file: file.write_bytes("one\n".encode("utf-16-le")),
            "'passwords' has control characters, which no password has",
        ),
        (
            written("<html>\n<title>502 Bad Gateway</title>\n</html>"),
            "'passwords' has a page, and no passwords",
        ),
        (written("\ufeff<!-- 502 -->\n<head>"), "'passwords' has a page, and no passwords"),
        (written("\n" * 262_145), "'passwords' has more than 262,144 bytes"),
        (
            replaced_by_a_pipe,
            "cannot read 'passwords': it is no regular file",
        ),
    ],
)
def test_a_broken_file_keeps_the_content_before_it_and_says_so(
    sources: Sources, file: Path, break_it: Callable[[Path], object], reason: str
) -> None:
    break_it(file)
    first, second, third = looks(sources, 3)
    assert (first, third) == (None, None)
    assert second is not None
    assert second.writing == ["one", "two"]
    assert second.errors == [f"--ingest-password-file: {reason}{KEPT}"]
    if file.is_dir():
        file.rmdir()
    file.unlink(missing_ok=True)
    file.write_text("three")
    _, mended = looks(sources)
    assert mended is not None
    assert (mended.writing, mended.errors) == (["three"], [])


def test_a_file_that_comes_back_as_it_was_is_in_order_again(sources: Sources, file: Path) -> None:
    file.rename(file.with_suffix(".old"))
    assert (looks(sources)[1] or sources.content()).errors
    file.with_suffix(".old").rename(file)
    _, mended = looks(sources)
    assert mended is not None
    assert (mended.writing, mended.errors) == (["one", "two"], [])


def test_a_file_that_is_away_for_one_look_is_no_error(sources: Sources, file: Path) -> None:
    file.rename(file.with_suffix(".old"))
    assert looks(sources, 1) == [None]
    file.with_suffix(".old").rename(file)
    assert looks(sources, 3) == [None, None, None]


def test_flags_and_several_files_add_up(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a", "b")]
    for file in files:
        file.write_text(f"both\n{file.name}\n")
    flags = [part for file in files for part in ("--ingest-password-file", str(file))]
    settings = parse([*flags, "--password", "x", "--password", "y"], {})
    content = Sources(settings).content()
    assert (content.writing, list(content.reading)) == (["both", "a", "b"], ["x", "y"])


def test_too_many_files_are_refused_with_their_flags(file: Path) -> None:
    flags = ["--ingest-password-file", str(file)] * 12
    assert Sources(parse(flags, {})).is_watched
    with pytest.raises(SettingError, match=r"^--password-file and --ingest.+: 13 files"):
        Sources(parse([*flags, "--password-file", str(file)], {}))


def test_more_keys_without_a_name_than_are_tried_are_refused(tmp_path: Path) -> None:
    flags: list[str] = []
    for number in range(5):
        file = tmp_path / str(number)
        file.write_text(f"a secret of the application, number {number}")
        flags += ["--token-key", str(file)]
    assert len(Sources(parse(flags[:8], {})).content().keys) == 4
    with pytest.raises(SettingError, match=r"^--token-key: .+: 5 keys of HS256 without a kid, at"):
        Sources(parse(flags, {}))


def test_a_new_content_with_more_keys_than_are_tried_is_refused(tmp_path: Path) -> None:
    secret, file = tmp_path / "secret", tmp_path / "keys"
    secret.write_bytes(SECRET)

    def write(count: int, **members: str) -> None:
        keys = [{"kty": "oct", "k": f"{n}{SECRET.hex()}{n}00", **members} for n in range(count)]
        file.write_text(json.dumps({"keys": keys}))

    write(3)
    sources = Sources(parse(["--token-key", str(secret), "--token-key", str(file)], {}))
    write(4)
    refused = looks(sources)[-1]
    assert refused is not None
    assert len(refused.keys) == 4
    assert refused.errors == [
        "--token-key: 'keys' would be one too many: 5 keys of HS256 without a kid, at most 4 are"
        f" possible{KEPT}"
    ]
    write(5, kid="a")
    again = looks(sources)[-1]
    assert again is not None
    assert ["5 keys of HS256 with the same kid" in each for each in again.errors] == [True]
    write(4, kid="a")
    taken = looks(sources)[-1]
    assert taken is not None
    assert (len(taken.keys), taken.errors) == (5, [])


def test_keys_with_a_name_may_be_many(tmp_path: Path) -> None:
    file = tmp_path / "key"
    secret = base64.urlsafe_b64encode(SECRET).decode().rstrip("=")
    keys = [{"kty": "oct", "k": secret, "kid": f"{number}"} for number in range(5)]
    file.write_text(json.dumps({"keys": keys}))
    assert len(Sources(parse(["--token-key", str(file)], {})).content().keys) == 5


def test_the_decoys_are_the_costliest_hashes_of_a_principal(tmp_path: Path) -> None:
    file = tmp_path / "rights.toml"
    costly = CHEAP.replace("ln=4", "ln=6")
    names = {"ada": [CHEAP], "bob": [costly], "eve": [CHEAP, CHEAP]}
    lines = [f"[{name}]\npassword_hash = {hashes}\n" for name, hashes in names.items()]
    file.write_text("".join(lines))
    assert Sources(parse(["--rights", str(file)], {})).content().decoys == [parse_hash(costly)]


def test_a_refused_content_is_judged_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = []

    def judge(content: bytes) -> list[str]:
        judged.append(content)
        return passwords_in(content)

    monkeypatch.setattr("oplogd.web.access.sources.passwords_in", judge)
    sources = Sources(parse(["--ingest-password-file", str(file)], {}))
    file.write_text("\n")
    looks(sources, 5)
    assert judged.count(b"\n") == 1
    file.write_text("three")
    looks(sources)
    file.write_text("\n")
    looks(sources, 5)
    assert judged.count(b"\n") == 2
    assert sources.content().writing == ["three"]


def test_the_key_of_a_password_is_derived_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    derived = []

    def derive(password: str) -> bytes:
        derived.append(password)
        return password.encode()

    monkeypatch.setattr("oplogd.web.access.sources.signing_key", derive)
    sources = Sources(parse(["--password-file", str(file)], {}))
    sources.content()
    file.write_text("two\nthree\n")
    found = looks(sources)[1]
    assert found is not None
    assert found.reading == {"two": b"two", "three": b"three"}
    assert derived == ["one", "two", "three"]


def test_a_pipe_is_read_once(file: Path) -> None:
    settings = parse(["--ingest-password-file", str(file)], {})
    (given,) = settings.ingest_password
    given.is_regular = False  # type: ignore[union-attr]  # as for /dev/fd/63
    sources = Sources(settings)
    assert not sources.is_watched
    file.unlink()
    assert looks(sources) == [None, None]
    assert sources.content().writing == ["one", "two"]


def test_a_key_keeps_its_kind_until_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(public_pem(private("ES256")))
    sources = Sources(parse(["--token-key", str(file)], {}))
    for content in (
        b"upstream connect error or disconnect/reset before headers",
        b"x" * 9 + SECRET,
    ):
        file.write_bytes(content)
        found = looks(sources)[-1]
        assert found is None or found.keys == sources.content().keys
        assert [key.algorithm for key in sources.content().keys] == ["ES256"]
    assert sources.content().errors == [
        "--token-key: 'key' was a PEM, and now is a secret: needs a restart"
        "; the content before it stays in use"
    ]
    file.write_bytes(public_pem(private("EdDSA")))
    changed = looks(sources)[-1]
    assert changed is not None
    assert [key.algorithm for key in changed.keys] == ["EdDSA"]


def test_principals_are_read_again_and_close_both_sides(tmp_path: Path) -> None:
    file = tmp_path / "rights.toml"
    file.write_text(ADA)
    sources = Sources(parse(["--rights", str(file)], {}))
    content = sources.content()
    assert (list(content.principals), content.is_closed) == (["ada"], True)
    file.write_text(ADA.replace("[ada]", "[bob]"))
    _, changed = looks(sources)
    assert changed is not None
    assert list(changed.principals) == ["bob"]
    file.write_text(ADA.replace("read", "reed"))
    _, broken = looks(sources)
    assert broken is not None
    assert list(broken.principals) == ["bob"]
    assert broken.errors == [
        f"--rights: 'rights.toml' [ada] reed: there is no such member of a right{KEPT}"
    ]


def test_a_bad_file_of_principals_refuses_the_start_with_its_flag(tmp_path: Path) -> None:
    file = tmp_path / "rights.toml"
    file.write_text("")
    with pytest.raises(SettingError, match=r"^--rights: '.+rights.toml' names no principal$"):
        Sources(parse(["--rights", str(file)], {}))


def test_who_looks_anew_begins_with_the_content_in_use(sources: Sources, file: Path) -> None:
    file.write_text("three")
    present = looks(sources)[1]
    assert present is not None
    settings = parse(["--ingest-password-file", str(file)], {})
    (given,) = settings.ingest_password
    given.content = b"one\ntwo\n"  # type: ignore[union-attr]  # as at the start of the agent
    for text, passwords in (("", ["three"]), ("one\ntwo\n", ["one", "two"])):
        successor = Sources(settings)
        file.write_text(text)
        found = [successor.look(present) for _ in range(3)]
        assert found[-1] is not None
        assert found[-1].writing == passwords
