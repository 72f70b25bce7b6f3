"""CSV: quotes, headers and encodings."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.kits.spark.helpers import dump_state, objects_of, put, read_dump, refusal, row

T = "2020-01-01T00:00:00.000Z"
CSV = ("--format", "csv")
_QUOTE = "holds a quote or a backslash; give --option escape='\"' if quotes are doubled"
_FIELDS = "it has more or fewer fields than the header"


@pytest.mark.parametrize(
    ("header", "options", "files"),
    [
        (
            "id,type,timestamp",
            [],
            {
                "1,video,{T}\n2,video,{T},more": f"2: {_FIELDS}",
                "3,video,{T}\n4,video": f"2: {_FIELDS}",
                '"x""y",video,{T}': f"1: id: {_QUOTE}",
                '"a\\\\b",video,{T}': f"1: id: {_QUOTE}",
                "é,video,{T}": "1: id: is not UTF-8; --option encoding=",
                "5,video,2020-01-01 00:00:00": "1: timestamp: not an RFC 3339 time",
            },
        ),
        (
            "id,type,timestamp,parents",
            [],
            {
                '1,video,{T},"[""a""]"': f"1: parents: {_QUOTE}",
                '2,video,{T},"[""a"",""b""]"': f"1: {_FIELDS}",
            },
        ),
        (
            "id,type,timestamp",
            ["--option", "inferSchema=true"],
            {"1,video,2020-01-01 00:00:00\n2,video,soon": "1: timestamp: not an RFC 3339 time"},
        ),
    ],
    ids=["without parents", "with parents", "with times of two kinds"],
)
def test_a_line_of_csv_that_may_mean_something_else_is_invalid(
    spark: SparkSession, tmp_path: Path, header: str, options: list[str], files: dict[str, str]
) -> None:
    for number, lines in enumerate(files):
        text = f"{header}\n{lines}\n".replace("{T}", T)
        put(tmp_path / f"dump/{number}.csv", text.encode("latin-1"))
    faults = read_dump(spark, *CSV, *options, tmp_path / "dump").faults
    for number, reason in enumerate(files.values()):
        of_file = [fault for fault in faults if f"/{number}.csv, " in fault]
        assert any(f"/{number}.csv, {reason}" in fault for fault in of_file), (reason, of_file)


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
        assert objects_of(spark, *CSV, "--option", 'escape="', *more, dump) == wanted
    latin = put(tmp_path / "latin.csv", f"id,type,timestamp\n\u00e9,video,{T}\n".encode("latin-1"))
    found = objects_of(spark, *CSV, "--option", "encoding=ISO-8859-1", latin)
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
            spark, *CSV, tmp_path / "dump"
        )
    put(tmp_path / "dump/2.csv", b"id,type,timestamp\n")
    assert list(objects_of(spark, *CSV, tmp_path / "dump")) == ["video/1"]


def test_a_column_of_csv_may_have_no_name(spark: SparkSession, tmp_path: Path) -> None:
    rows = [row("video", str(number), T) for number in range(3)]
    text = "".join(f"{number},video,{number},{T},[]\n" for number in range(3))
    for number, header in enumerate(
        (",type,id,timestamp,parents", "_c0,type,id,timestamp,parents")
    ):
        file = put(tmp_path / f"{number}.csv", f"{header}\n{text}".encode())
        assert objects_of(spark, *CSV, file) == dump_state(rows)
        put(tmp_path / f"dump{number}/1.csv", f"{header}\n{text}".encode())
        put(tmp_path / f"dump{number}/2.csv", f"n,type,id,timestamp,parents\n{text}".encode())
        assert "csv has another header than the other files" in refusal(
            spark, *CSV, tmp_path / f"dump{number}"
        )
