"""The examples in docs/reference/rights.md are understood as it says."""

import json
import re

from oplogd.model.names import OPLOG, TopicName
from oplogd.web.access.keys.principals import principals_in
from oplogd.web.access.right_bodies import right_of
from tests.kits.paths import ROOT

PAGE = (ROOT / "docs/reference/rights.md").read_text(encoding="utf-8")


def examples(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_file_of_principals_is_valid() -> None:
    (text,) = examples("toml")
    found = principals_in(text.encode())
    assert list(found) == ["search", "shop"]
    assert found["search"].right.types == frozenset({"video"})
    shop = found["shop"].right
    assert TopicName("shop", "x") in shop.manage
    assert TopicName("shop", "x") not in shop.write
    assert "orders-1" in shop.leases


def test_the_claims_of_a_token_grant_what_the_page_says() -> None:
    (text,) = examples("json")
    right = right_of(json.loads(text)["oplog"])
    assert OPLOG in right.read
    assert right.parents == frozenset({"user/ada"})
