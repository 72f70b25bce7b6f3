"""The software bill of materials tells the version and nothing about the building machine."""

from scripts.dist import publishable
from scripts.version import version


def test_the_bill_has_the_version_and_no_path_of_the_building_machine() -> None:
    home = {"type": "website", "url": "https://client.example"}
    wheel = {"type": "distribution", "url": "file:///home/ada/dist/oplogc-1-py3-none-any.whl"}
    bill = publishable(
        {
            "metadata": {"component": {"name": "oplog"}},
            "components": [{"name": "oplogc", "externalReferences": [wheel, home]}, {"name": "x"}],
        }
    )
    assert bill["metadata"]["component"] == {"name": "oplog", "version": version()}
    assert bill["components"] == [{"name": "oplogc", "externalReferences": [home]}, {"name": "x"}]
