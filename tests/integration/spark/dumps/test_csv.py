"""CSV: quotes, headers and encodings."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.kits.spark.helpers import dump_state, put, refusal, row, state_after

T = "2020-01-01T00:00:00.000Z"
CSV = ("--format", "csv")


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        (
            "id,type,timestamp\n1,video,{T}\n2,video,{T},more\n",
            [],
            "row 2: it has more or fewer fields",
        ),
        ("id,type,timestamp\n1,video,{T}\n2,video\n", [], "row 2: it has more or fewer fields"),
        (
            'id,type,timestamp\n"x""y",video,{T}\n',
            [],
            "row 1: id: holds a quote or a backslash; give --option escape",
        ),
        ('id,type,timestamp\n"a\\\\b",video,{T}\n', [], "row 1: id: holds a quote or a backslash"),
        ('id,type,timestamp,parents\n1,video,{T},"[""a""]"\n', [], "row 1: parents: holds a quote"),
        (
            'id,type,timestamp,parents\n1,video,{T},"[""a"",""b""]"\n',
            [],
            "row 1: it has more or fewer fields",
        ),
        (
            "id,type,timestamp\n\u00e9,video,{T}\n",
            [],
            "row 1: id: is not UTF-8; --option encoding=",
        ),
        (
            "id,type,timestamp\n1,video,2020-01-01 00:00:00\n2,video,soon\n",
            ["inferSchema=true"],
            "row 1: timestamp: not an RFC",
        ),
        (
            "id,type,timestamp\n1,video,2020-01-01 00:00:00\n",
            [],
            "row 1: timestamp: not an RFC 3339 time",
        ),
    ],
)
def test_a_line_of_csv_that_may_mean_something_else_is_invalid(
    spark: SparkSession,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    text: str,
    options: list[str],
    reason: str,
) -> None:
    dump = put(tmp_path / "dump.csv", text.replace("{T}", T).encode("latin-1"))
    given = [argument for option in options for argument in ("--option", option)]
    assert " invalid row" in refusal(spark, tmp_path, *CSV, *given, dump)
    assert f"dump.csv, {reason}" in capfd.readouterr().err


def test_options_tell_quotes_and_encoding_of_csv(spark: SparkSession, tmp_path: Path) -> None:
    text = (
        'ID,type,timestamp,parents\n"x""y",video,{T},"[""a"",""b,c""]"\n'
        '"a\\b",video,{T},"d,e"\n007,video,{T},[]\n'
    )
    dump = put(
        tmp_path / "dump.csv",
        b"\xef\xbb\xbf" + text.replace("{T}", T).replace("\n", "\r\n").encode(),
    )
    wanted = dump_state(
        [
            row("video", 'x"y', T, "a", "b,c"),
            row("video", "a\\b", T, "d", "e"),
            row("video", "007", T),
        ]
    )
    for more in ([], ["--option", "inferSchema=true"]):
        assert state_after(spark, tmp_path, *CSV, "--option", 'escape="', *more, dump) == wanted
    latin = put(tmp_path / "latin.csv", f"id,type,timestamp\n\u00e9,video,{T}\n".encode("latin-1"))
    found = state_after(spark, tmp_path, *CSV, "--option", "encoding=ISO-8859-1", latin)
    assert found == dump_state([row("video", "\u00e9", T)])


def test_a_csv_file_with_another_header_is_named(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "dump/1.csv", f"id,type,timestamp\n1,video,{T}\n".encode())
    for header, line in (
        ("type,id,timestamp", f"video,2,{T}"),
        ("id,type", "2,video"),
        (f"2,video,{T}", "3,video,x"),
    ):
        put(tmp_path / "dump/2.csv", f"{header}\n{line}\n".encode())
        assert "csv has another header than the other files" in refusal(
            spark, tmp_path, *CSV, tmp_path / "dump"
        )
    put(tmp_path / "dump/2.csv", b"id,type,timestamp\n")
    assert list(state_after(spark, tmp_path, *CSV, tmp_path / "dump")) == ["video/1"]


def test_a_column_of_csv_may_have_no_name(spark: SparkSession, tmp_path: Path) -> None:
    rows = [row("video", str(number), T) for number in range(3)]
    text = "".join(f"{number},video,{number},{T},[]\n" for number in range(3))
    for number, header in enumerate(
        (",type,id,timestamp,parents", "_c0,type,id,timestamp,parents")
    ):
        file = put(tmp_path / f"{number}.csv", f"{header}\n{text}".encode())
        assert state_after(spark, tmp_path, *CSV, file) == dump_state(rows)
        put(tmp_path / f"dump{number}/1.csv", f"{header}\n{text}".encode())
        put(tmp_path / f"dump{number}/2.csv", f"n,type,id,timestamp,parents\n{text}".encode())
        assert "csv has another header than the other files" in refusal(
            spark, tmp_path, *CSV, tmp_path / f"dump{number}"
        )
