"""Named consumers on each store. Its kinds differ in how they keep operations, too."""

import pytest

from tests.contract.wire.consumers.consumers import ConsumerClient
from tests.contract.wire.topics.topics import TopicClient
from tests.kits.contract.wire import Target


@pytest.fixture
def consumer(target: Target) -> ConsumerClient:
    return ConsumerClient(target)


@pytest.fixture
def of_topic(target: Target, topic: TopicClient) -> ConsumerClient:
    """A consumer of ``topic``."""
    return ConsumerClient(target).create(topic.name)
