import pytest


@pytest.fixture(autouse=True)
def polls_wait_for_no_follower(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test lets the follower look by itself."""
    monkeypatch.setattr("oplogd.stream.topic_feed.REACH_SECONDS", 0)
