"""Shards: their form, and the hash that clients may compute, too."""

import pytest

from oplogd.errors import FilterError
from oplogd.model.message import message_hash
from oplogd.model.operation import Data
from oplogd.model.shard import MAX_SHARDS, MAX_TOTALS, Shard, hash_of, object_hash, parse_shard

ID = "0000018bcfe56800000700000000000000000000"


@pytest.mark.parametrize(
    ("text", "hash_"),
    [
        ("", 0),
        ("123456789", 0xCBF43926),  # the check value of this CRC-32
        ("video/x1", 0x35E8EE75),
        ("\N{LATIN SMALL LETTER E WITH ACUTE}", 0x0E048D3E),
    ],
)
def test_the_hash_is_crc_32_of_utf_8(text: str, hash_: int) -> None:
    assert hash_of(text) == hash_


def test_the_object_of_an_operation_decides() -> None:
    made = Data("2014-11-06T11:04:39.041Z", ["user/1"], "video", "x1")
    assert object_hash(made) == hash_of("video/x1")


@pytest.mark.parametrize(
    ("data", "of"),
    [
        ('{"payload":"a","key":"k"}', "k"),
        ('{"key":"k","payload":"b"}', "k"),
        ('{"payload":"a","key":"\\u00e9"}', "\N{LATIN SMALL LETTER E WITH ACUTE}"),
        ('{"payload":"a","key":""}', ""),
        ('{"payload":"a","key":null}', ID),
        ('{"payload":"a"}', ID),
        ('{"payload":"a","headers":[["key","k"]]}', ID),
        ('{"payload":"a","key":', ID),
        ('{"payload":"a","key":3}', ID),
        ("", ID),
    ],
)
def test_the_key_of_a_message_decides_and_without_one_its_id(data: str, of: str) -> None:
    assert message_hash(ID, data) == hash_of(of)


@pytest.mark.parametrize("hash_", range(7))
def test_a_hash_is_in_one_shard(hash_: int) -> None:
    assert [number for number in range(3) if Shard(number, 3).has(hash_)] == [hash_ % 3]


@pytest.mark.parametrize("text", ["0/1", "0/256", "255/256", "3/8", "9/10", "99/100"])
def test_a_shard_is_its_number_and_the_number_of_shards(text: str) -> None:
    number, total = map(int, text.split("/"))
    assert parse_shard(text) == Shard(number, total)
    assert str(parse_shard(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "3", "/", "3/", "/8", "8/8", "9/8", "0/0", "0/257", "256/256", "256/257", "-1/8",
        "+3/8", "03/8", "3/08", "00/8", "3/8/1", " 3/8", "3/8\n", "3 / 8", "3.0/8", "٣/8", "3/٨",
        "1٣/80", "3/8٨", "3/²", "1000/8", "0/1000", "3\\8",
    ],
)  # fmt: skip
def test_a_bad_shard_is_told_with_its_form(text: str) -> None:
    with pytest.raises(FilterError, match=r"shard: must be I/N, as 0/8: N from 1 to 256"):
        parse_shard(text)


def test_the_bounds_are_those_of_the_documents() -> None:
    assert (MAX_SHARDS, MAX_TOTALS) == (256, 16)
