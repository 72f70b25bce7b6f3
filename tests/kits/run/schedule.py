"""Which tests run in one process, and in which order."""

from zlib import crc32

import pytest

# Long files that do not need the Spark session of all others. Its start takes 8 s of CPU time.
_OWN_SPARK = (
    "job/test_failures.py",
    "job/test_submit.py",
    "spark/test_cluster_docs.py",
    "spark/test_connect.py",
    "spark/test_pipelines.py",
)
# Beginnings of the groups that take longest. They come first, so that no process ends late.
_LONGEST = (
    "spark/all",
    "spark/own",
    "integration/mongo/test_spool",
    "deploy/test_packages",
    "integration/clients/test_docs",
    "e2e/transactions/test_crashes",
    "integration/mongo/test_failures",
    "conformance/",
    "deploy/test_checkout",
    "integration/clients/js/",
    "browser/",
)


def group(nodeid: str) -> str:
    """Return the name of the group of tests that run in one process: a file, or a Spark session."""
    path = nodeid.partition("::")[0].removeprefix("tests/")
    if not path.startswith("integration/spark/"):
        return path
    return "spark/own" if path.endswith(_OWN_SPARK) else "spark/all"


def place(group: str) -> tuple[int, int, str]:
    """Return the place of a group in the order.

    Some suites wait and others compute, so the order mixes the groups of all suites.
    """
    found = (number for number, start in enumerate(_LONGEST) if group.startswith(start))
    return next(found, len(_LONGEST)), crc32(group.encode()), group


class Schedule:
    """Gives groups of tests to the processes of a run."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: place(group(item.nodeid)))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: object) -> object:
        # The marks that xdist has for this have no effect with pytest 9.2, whose tests have other
        # ids.
        from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

        class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
            def _split_scope(self, nodeid: str) -> str:
                return group(nodeid)

        return GroupScheduling(config, log)
